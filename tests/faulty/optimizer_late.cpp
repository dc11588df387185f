// Makes its state in the first step: two numbers a weight.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>

#include <trainyard/optimizer.hpp>
#include <trainyard/state.hpp>

namespace {

using namespace trainyard;

class Late final : public Optimizer {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("late").version("1.0.0").summary("Makes its state in the first step.");
  }
  explicit Late(const Options&) {}

  void step() override {
    if (!averages_.empty()) return;
    for (const ParamGroup& group : groups_)
      for (const at::Tensor& parameter : group.params)
        for (int i = 0; i < 2; ++i) averages_.push_back(at::zeros_like(parameter));
  }
  void save(StateWriter& state) const override {
    for (std::size_t i = 0; i < averages_.size(); ++i) state.tensor(std::to_string(i), averages_[i]);
  }
  void load(const StateReader&) override {}

 private:
  std::vector<at::Tensor> averages_;
};

}  // namespace

TRAINYARD_PLUGIN(Late)
