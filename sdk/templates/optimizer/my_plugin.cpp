#include <trainyard/helpers/slot_optimizer.hpp>

/// Lion: steps of one size, along the sign of a mean of gradients (Chen et al., "Symbolic discovery of
/// optimization algorithms", NeurIPS 2023, algorithm 2).
class MyPlugin final : public trainyard::SlotOptimizer {
 public:
  struct Options {
    double beta1 = 0.9, beta2 = 0.99;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("Steps along the sign of averaged gradients (Lion).");
    m.option("beta1", &Options::beta1, "share of the mean in a step's direction").min(0.0).below(1.0);
    m.option("beta2", &Options::beta2, "share of the mean that is kept").min(0.0).below(1.0);
  }
  explicit MyPlugin(const Options& options) : SlotOptimizer({{"mean"}}), options_(options) {}

 protected:
  void update(std::size_t group, trainyard::UpdateLists& lists, std::int64_t) override {
    const double lr = groups_[group].lr;
    for (std::size_t i = 0; i < lists.params.size(); ++i) {
      at::Tensor& mean = lists.slots[0][i];
      lists.params[i].mul_(1.0 - lr * groups_[group].weight_decay);
      lists.params[i].sub_(mean.lerp(lists.grads[i], 1.0 - options_.beta1).sign_(), lr);
      mean.lerp_(lists.grads[i], 1.0 - options_.beta2);
    }
  }
  Options options_;
};
TRAINYARD_PLUGIN(MyPlugin)
