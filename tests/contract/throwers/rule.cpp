#include <trainyard/rule.hpp>

#include "thrower.hpp"

/// What it throws while it looks does not end the run: the recorder counts and reports it.
class Thrower final : public trainyard::Rule {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) { describe_thrower(m, {"watches"}, {}); }
  explicit Thrower(const Options& options) : options_(options) {}
  std::vector<trainyard::Watch> watches() const override {
    options_.at("watches");
    return {{"losses"}};
  }
  std::optional<trainyard::Finding> evaluate(const trainyard::Trial&, const trainyard::StepRecord&) override {
    return std::nullopt;
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(Thrower)
