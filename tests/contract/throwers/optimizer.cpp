#include <trainyard/optimizer.hpp>

#include "thrower.hpp"

class Thrower final : public trainyard::Optimizer {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) { describe_thrower(m, {"open"}, {"step"}); }
  explicit Thrower(const Options& options) : options_(options) {}
  void open(std::vector<trainyard::ParamGroup> groups) override {
    options_.at("open");
    Optimizer::open(std::move(groups));
  }
  void step() override { options_.at("step"); }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(Thrower)
