#include <optional>
#include <utility>

#include <catch2/catch.hpp>

#include <trainyard/context.hpp>
#include <trainyard/schedule.hpp>
#include <trainyard/state.hpp>

#include "golden.hpp"
#include "tests/support/plugin.hpp"

namespace plateau_tests {

using namespace trainyard;
using nlohmann::json;

namespace {

/// A run that does nothing but evaluate.
class Evaluations final : public StepContext {
 public:
  explicit Evaluations(const Table& options)
      : options_(options), plateau_(std::in_place, "plateau", options), services_of_(*this) {
    event_ = Event::eval_end;
    services_ = &services_of_;
  }
  void evaluate(double value) {
    clock_.step += 7;
    evaluate_again(value);
  }
  void evaluate_again(double value) {
    value_ = value;
    plateau_->fire(*this);
  }
  double factor() const { return plateau_->plugin().factor({}); }
  State saved() const { return plateau_->saved(); }
  /// In a new object, with the state of the old one.
  void resume() {
    const State state = saved();
    plateau_.emplace("plateau", options_);
    plateau_->plugin().load(StateReader(state));
  }
  std::string asked;  ///< the name of the metric

 private:
  struct Values final : Services {
    explicit Values(Evaluations& run) : run_(run) {}
    double metric(std::string_view name) const override {
      run_.asked = name;
      return run_.value_;
    }
    void request(Control, const Caller&, std::string_view) override {}
    void withdraw(Control, const Caller&) override {}
    Evaluations& run_;
  };
  Table options_;
  std::optional<test::Subscribed<Schedule>> plateau_;
  double value_ = 0;
  Values services_of_;
};

}  // namespace

TEST_CASE("plateau gives the factors of torch, resumed after every evaluation or not") {
  int cases = 0;
  for (const json& each : test::golden("schedules.json")) {
    if (!each.contains("metrics")) continue;
    ++cases;
    INFO(each["options"]);
    for (const bool resumed : {false, true}) {
      Evaluations run(test::options(each["options"]));
      for (std::size_t i = 0; i < each["metrics"].size(); ++i) {
        CHECK(run.factor() == Approx(each["factor"][i].get<double>()).epsilon(1e-12));
        run.evaluate(each["metrics"][i]);
        if (resumed) run.resume();
      }
    }
  }
  CHECK(cases == 8);
}

TEST_CASE("plateau reads the metric it was told, once an evaluation, and leaves out what is no number") {
  Evaluations run(test::table({{"metric", "val/accuracy"}, {"mode", "max"}, {"patience", 0}}));
  run.evaluate(0.5);
  CHECK(run.asked == "val/accuracy");
  const State before = run.saved();
  run.evaluate_again(0.4);  // of the test split, say
  run.evaluate(std::nan(""));
  CHECK(digest(run.saved()) == digest(before));
  CHECK(run.factor() == 1.0);
  run.evaluate(0.4);
  CHECK(run.factor() == 0.1);
}

}  // namespace plateau_tests
