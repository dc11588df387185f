#include <catch2/catch.hpp>

#include <trainyard/context.hpp>
#include <trainyard/schedule.hpp>
#include <trainyard/state.hpp>

#include "golden.hpp"
#include "tests/support/plugin.hpp"

using namespace trainyard;
using nlohmann::json;

namespace {

/// A run that does nothing but evaluate.
class Evaluations final : public StepContext {
 public:
  explicit Evaluations(const Table& options)
      : entry_(test::entry("schedule", "plateau")), options_(options), services_of_(*this) {
    entry_.describe(manifest_);
    event_ = Event::eval_end;
    services_ = &services_of_;
    restart();
  }
  void evaluate(double value) {
    clock_.step += 7;
    evaluate_again(value);
  }
  void evaluate_again(double value) {
    value_ = value;
    for (const HookSpec& hook : manifest_.hooks)
      if (hook.event == event_) hook.call(self_, *this);
  }
  double factor() const { return plugin_->factor({}); }
  State saved() const {
    State state{.owner = "schedule", .version = "1.0.0", .scalars = {}, .tensors = {}};
    StateWriter writer(state);
    plugin_->save(writer);
    return state;
  }
  /// In a new object, with the state of the old one.
  void resume() {
    const State state = saved();
    restart();
    plugin_->load(StateReader(state));
  }
  std::string asked;  ///< the name of the metric

 private:
  struct Values final : Services {
    explicit Values(Evaluations& run) : run_(run) {}
    double metric(std::string_view name) const override {
      run_.asked = name;
      return run_.value_;
    }
    void request(Control, std::string_view, std::string_view) override {}
    Evaluations& run_;
  };
  void restart() {
    const PluginEntry::Instance made = entry_.create(manifest_, options_);
    plugin_.reset(dynamic_cast<Schedule*>(made.plugin));
    plugin_->set_host(host_);
    self_ = made.self;
  }

  const PluginEntry& entry_;
  Table options_;
  ManifestData manifest_;
  test::QuietHost host_;
  std::unique_ptr<Schedule> plugin_;
  void* self_ = nullptr;
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
