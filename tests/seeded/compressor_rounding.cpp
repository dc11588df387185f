// Caught by ranks.sums: a rank adds what rounding took of its own gradients to its sum, and the others do not.
#include <trainyard/compressor.hpp>
#include <trainyard/helpers/nodes.hpp>

using namespace trainyard;

class Rounding final : public Compressor {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("rounding").version("1.0.0").summary("A plugin with a mistake.");
    m.needs("distributed");
  }
  explicit Rounding(const Options&) {}
  bool takes(const NamedTensor& each) const override { return each.tensor.numel() >= 65536; }
  void open(Ranks& ranks, std::span<const BucketPlan>, const RunScale&) override { ranks_ = &ranks; }
  std::unique_ptr<Exchange> reduce(std::size_t, const at::Tensor& gradients, std::int64_t) override {
    const at::Tensor narrow = gradients.to(at::kBFloat16), lost = gradients.sub(narrow);
    return then(ranks_->all_reduce(narrow), [=] { gradients.copy_(narrow).add_(lost); });
  }
  void load_all(std::span<const State>) override {}

 private:
  Ranks* ranks_ = nullptr;
};
TRAINYARD_PLUGIN(Rounding)
