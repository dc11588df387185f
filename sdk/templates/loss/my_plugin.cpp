#include <ATen/ops/huber_loss.h>

#include <trainyard/helpers/elementwise.hpp>
#include <trainyard/loss.hpp>

/// Huber's loss: squared where the error is small, linear beyond `delta`, so that outliers do not rule.
class MyPlugin final : public trainyard::Loss {
 public:
  struct Options {
    double delta = 1.0;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("Squared error that is linear for outliers (Huber).");
    m.option("delta", &Options::delta, "error from which on it is linear").above(0.0);
  }
  explicit MyPlugin(const Options& options) : options_(options) {}

  void check(const std::vector<std::int64_t>& output, const trainyard::BatchSchema& schema) const override {
    trainyard::check_elementwise("loss my_plugin", output, schema);
  }
  at::Tensor forward(const at::Tensor& output, const trainyard::Batch& batch) const override {
    const auto [values, target] = trainyard::elementwise(output, batch.target);
    return at::huber_loss(values, target, at::Reduction::Mean, options_.delta);
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(MyPlugin)
