#include <optional>

#include <trainyard/sampler.hpp>

/// The order of the data, begun at another place each epoch: for data that is read best in a row.
class MyPlugin final : public trainyard::Sampler {
 public:
  struct Options {
    std::int64_t block = 1;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("The data in a row, each epoch from another place on.");
    m.option("block", &Options::block, "an epoch begins at a multiple of it").range(1, 1e9);
  }
  explicit MyPlugin(const Options& options) : options_(options) {}

  void open(const Source& source) override { source_ = source; }
  std::int64_t size() const override { return source_->size; }
  void order(std::int64_t epoch, std::int64_t first, std::span<std::int64_t> out) const override {
    const auto blocks = static_cast<std::uint64_t>((size() + options_.block - 1) / options_.block);
    const trainyard::RandomStream random = source_->random.at(static_cast<std::uint64_t>(epoch));
    const auto begin = static_cast<std::int64_t>(random.below(0, blocks)) * options_.block;
    for (std::int64_t& index : out) index = (begin + first++) % size();
  }

 private:
  Options options_;
  std::optional<Source> source_;
};
TRAINYARD_PLUGIN(MyPlugin)
