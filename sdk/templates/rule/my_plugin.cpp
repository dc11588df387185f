#include <trainyard/rule.hpp>

/// Fires where a weight has grown beyond a limit.
class MyPlugin final : public trainyard::Rule {
 public:
  struct Options {
    double limit = 10.0;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("A weight is larger than a limit.");
    m.option("limit", &Options::limit, "largest size of a weight").above(0.0);
  }
  explicit MyPlugin(const Options& options) : limit_(options.limit) {}

  std::vector<trainyard::Watch> watches() const override { return {{.tensors = "weights"}}; }
  std::optional<trainyard::Finding> evaluate(const trainyard::Trial& trial,
                                             const trainyard::StepRecord& now) override {
    for (const trainyard::TensorRecord* each : trial.tensors(now, "weights"))
      if (const double size = each->numbers().abs_maximum; size > limit_) {
        const std::string message = each->name + ": a weight is of size " + std::to_string(size);
        return trainyard::Finding{message, {each->name}, {{"size", size}}};
      }
    return std::nullopt;
  }

 private:
  double limit_;
};
TRAINYARD_PLUGIN(MyPlugin)
