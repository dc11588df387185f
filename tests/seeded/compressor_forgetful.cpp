// Caught by ranks.states: what was kept back of the gradients is saved, and nobody takes it again.
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <trainyard/compressor.hpp>
#include <trainyard/helpers/nodes.hpp>

using namespace trainyard;
class Forgetful final : public Compressor {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("forgetful").version("1.0.0").summary("A plugin with a mistake.").needs("distributed");
  }
  explicit Forgetful(const Options&) {}
  bool takes(const NamedTensor&) const override { return true; }
  void open(Ranks& ranks, std::span<const BucketPlan> buckets, const RunScale&) override {
    ranks_ = &ranks;
    for (const BucketPlan& each : buckets) kept_.push_back(at::zeros({each.elements}));
  }
  std::unique_ptr<Exchange> reduce(std::size_t i, const at::Tensor& gradients, std::int64_t) override {
    const at::Tensor narrow = gradients.add_(kept_[i]).to(at::kBFloat16);
    kept_[i] = gradients.sub(narrow);
    return then(ranks_->all_reduce(narrow), [=] { gradients.copy_(narrow); });
  }
  void save(StateWriter& state) const override { state.tensor("kept", at::cat(kept_)); }
  void load_all(std::span<const State>) override {}
  Ranks* ranks_ = nullptr;
  std::vector<at::Tensor> kept_;
};
TRAINYARD_PLUGIN(Forgetful)
