// Samples in the order of the dataset.
#include <numeric>

#include <trainyard/sampler.hpp>

namespace {

class Sequential final : public trainyard::Sampler {
 public:
  struct Options {};
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("sequential").version("1.0.0").summary("Every sample once an epoch, in the order of the dataset.");
  }
  explicit Sequential(const Options&) {}

  void open(const Source& source) override { size_ = source.size; }
  std::int64_t size() const override { return size_; }
  void order(std::int64_t, std::int64_t first, std::span<std::int64_t> out) const override {
    std::iota(out.begin(), out.end(), first);
  }

 private:
  std::int64_t size_ = 0;
};

}  // namespace

TRAINYARD_PLUGIN(Sequential)
