#include <trainyard/optimizer.hpp>

#include "thrower.hpp"

class OptimizerThrower final : public trainyard::Optimizer {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) { describe_thrower(m, {"open"}, {"step"}); }
  explicit OptimizerThrower(const Options& options) : options_(options) {}
  void open(std::vector<trainyard::ParamGroup> groups) override {
    options_.at("open");
    Optimizer::open(std::move(groups));
  }
  void step() override { options_.at("step"); }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(OptimizerThrower)
