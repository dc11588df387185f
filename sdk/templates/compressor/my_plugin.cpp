#include <trainyard/compressor.hpp>
#include <trainyard/helpers/nodes.hpp>

class MyPlugin final : public trainyard::Compressor {
 public:
  struct Options {
    std::int64_t least = 64;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("Sums large gradients in bfloat16: half the bytes.");
    m.option("least", &Options::least, "numbers of a parameter that it takes").min(1);
    m.needs("distributed");
  }
  explicit MyPlugin(const Options& options) : least_(options.least) {}
  bool takes(const trainyard::NamedTensor& each) const override { return each.tensor.numel() >= least_; }
  void open(trainyard::Ranks& ranks, std::span<const trainyard::BucketPlan>,
            const trainyard::RunScale&) override {
    ranks_ = &ranks;
  }
  std::unique_ptr<trainyard::Exchange> reduce(std::size_t, const at::Tensor& wide, std::int64_t) override {
    const at::Tensor narrow = wide.to(at::kBFloat16);
    return trainyard::then(ranks_->all_reduce(narrow), [wide, narrow] { wide.copy_(narrow); });
  }
  void load_all(std::span<const trainyard::State>) override {}

 private:
  std::int64_t least_;
  trainyard::Ranks* ranks_ = nullptr;
};
TRAINYARD_PLUGIN(MyPlugin)
