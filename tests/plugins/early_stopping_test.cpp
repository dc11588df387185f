#include <catch2/catch.hpp>

#include <cmath>
#include <map>
#include <optional>

#include <trainyard/hook.hpp>
#include <trainyard/state.hpp>

#include "tests/support/plugin.hpp"

namespace early_stopping_tests {

using namespace trainyard;

namespace {

const double no_number = std::nan("");

/// A run that does nothing but evaluate.
class Evaluations final : public StepContext {
 public:
  explicit Evaluations(const char* mode, std::int64_t patience, double min_delta = 0.0)
      : options_(test::table(
            {{"metric", "val/loss"}, {"mode", mode}, {"patience", patience}, {"min_delta", min_delta}})),
        plugin_(std::in_place, "early_stopping", options_),
        host_(*this) {
    services_ = &host_;
    caller_ = &lent_;
    clock_.total_steps = 100;
  }
  /// Of a split with this loss; none where the evaluation was cut short.
  void evaluate(std::optional<double> loss, std::string_view split = "val") {
    ++clock_.step;
    split_ = split;
    const std::string name = std::string(split) + "/loss";
    host_.values.erase(name);
    if (loss) host_.values[name] = *loss;
    fire(Event::eval_end);
  }
  void fire(Event event) {
    event_ = event;
    plugin_->fire(*this);
  }
  /// In a new object, with another option and the state of the old one.
  void resume(const char* option, Value value, Event event = Event::after_load) {
    const State state = plugin_->saved();
    options_.set(option, std::move(value));
    plugin_.emplace("early_stopping", options_);
    plugin_->plugin().load(StateReader(state));
    fire(event);
  }
  using StepContext::clock_;
  bool stops = false;
  std::string why;

 private:
  struct Values final : Services {
    explicit Values(Evaluations& run) : run_(run) {}
    double metric(std::string_view) const override { return no_number; }
    const std::map<std::string, double, std::less<>>& metrics() const override { return values; }
    void request(Control control, const Caller&, std::string_view reason) override {
      CHECK(control == Control::stop_run);
      run_.stops = true;
      run_.why = reason;
    }
    void withdraw(Control control, const Caller&) override {
      CHECK(control == Control::stop_run);
      run_.stops = false;
    }
    std::map<std::string, double, std::less<>> values;

   private:
    Evaluations& run_;
  };

  Table options_;
  std::optional<test::Subscribed<Hook>> plugin_;
  Values host_;
  Caller lent_{"early_stopping", Region::control};
};

/// The number of the evaluation that ends the run; 0: none does.
int last(Evaluations&& run, const std::vector<double>& losses) {
  for (std::size_t i = 0; i < losses.size(); ++i) {
    run.evaluate(losses[i]);
    if (run.stops) return static_cast<int>(i) + 1;
  }
  return 0;
}

}  // namespace

TEST_CASE("early stopping: evaluations in a row without a gain on the best") {
  // The first sets the mark; a loss that falls does not pass for one that should rise.
  CHECK(last(Evaluations("max", 3), {4, 3, 2, 1, 0}) == 4);
  CHECK(last(Evaluations("max", 1), {4, 3, 2, 1, 0}) == 2);
  CHECK(last(Evaluations("min", 2), {4, 3, 2, 1, 0}) == 0);
  CHECK(last(Evaluations("min", 2), {4, 4, 3, 3, 3}) == 5);  // as good is not better
  CHECK(last(Evaluations("min", 2), {4, 5, 4, 1, 2}) == 3);
  CHECK(last(Evaluations("min", 3), {4, 5, 3.9, 4, 5, 6}) == 6);  // on the best, not on the one before
  CHECK(last(Evaluations("min", 2, 1.0), {4, 3.5, 3, 2.5, 2}) == 3);
  CHECK(last(Evaluations("min", 2, 1.0), {4, 3.5, 2.5, 2, 1}) == 0);
  CHECK(last(Evaluations("min", 2), {no_number, no_number, 4}) == 2);
  CHECK(last(Evaluations("min", 2), {no_number, 4, no_number, no_number}) == 4);
}

TEST_CASE("early stopping: what is no evaluation of its metric does not count") {
  Evaluations run("min", 2);
  run.evaluate(4);
  run.evaluate(5);
  run.evaluate(std::nullopt);  // cut short
  run.evaluate(9, "test");
  CHECK_FALSE(run.stops);
  run.evaluate(4);
  CHECK(run.stops);
  CHECK(run.why == "val/loss did not improve on 4.000000 for 2 evaluations");
}

TEST_CASE("early stopping: at the end of the budget there is nothing to stop") {
  Evaluations run("min", 1);
  run.evaluate(4);
  run.clock_.step = 99;
  run.evaluate(4);
  CHECK_FALSE(run.stops);
  run.clock_.total_steps = 0;  // a wall time
  run.evaluate(4);
  CHECK(run.stops);
}

TEST_CASE("early stopping: other options, or another state, make it change its mind") {
  for (const Event event : {Event::after_load, Event::swap_in}) {
    Evaluations run("min", 2);
    for (int i = 0; i < 3; ++i) run.evaluate(4);
    CHECK(run.stops);
    run.resume("patience", 3, event);
    CHECK_FALSE(run.stops);
    run.resume("patience", 2, event);
    CHECK(run.stops);
    run.resume("patience", 3, event);
    run.evaluate(4);
    CHECK(run.stops);
    run.resume("mode", "max", event);  // the best of another rule says nothing
    CHECK_FALSE(run.stops);
    run.evaluate(3);
    CHECK_FALSE(run.stops);
  }
}

}  // namespace early_stopping_tests
