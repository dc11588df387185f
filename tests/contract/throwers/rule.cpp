#include <trainyard/rule.hpp>

#include "thrower.hpp"

class RuleThrower final : public trainyard::Rule {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) {
    describe_thrower(m, {"watches", "modes", "window"}, {"evaluate", "remember"});
  }
  explicit RuleThrower(const Options& options) : options_(options) {}

  std::vector<trainyard::Watch> watches() const override {
    options_.at("watches");
    return {{"losses"}};
  }
  std::vector<trainyard::Mode> modes() const override {
    options_.at("modes");
    return Rule::modes();
  }
  std::int64_t window() const override {
    options_.at("window");
    return 1;
  }
  std::optional<trainyard::Finding> evaluate(const trainyard::Trial&, const trainyard::StepRecord&) override {
    seen_ = true;
    options_.at("evaluate");
    return std::nullopt;
  }
  void remember(trainyard::StateWriter&) const override {
    if (seen_) options_.at("remember");
  }

 private:
  Options options_;
  bool seen_ = false;
};
TRAINYARD_PLUGIN(RuleThrower)
