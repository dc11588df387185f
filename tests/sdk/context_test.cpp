#include <cmath>

#include <ATen/ops/ones.h>
#include <catch2/catch.hpp>

#include <trainyard/context.hpp>
#include <trainyard/error.hpp>

namespace context_tests {

using namespace trainyard;
using Catch::Contains;

namespace {

struct TestContext final : StepContext {
  struct Recorder final : Services {
    double metric(std::string_view name) const override { return name == "val/loss" ? 0.5 : std::nan(""); }
    void request(Control control, const Caller& caller, std::string_view reason) override {
      asked = control;
      who = caller.id;
      why = reason;
    }
    void withdraw(Control control, const Caller& caller) override {
      withdrawn = control;
      who = caller.address;
    }
    Control asked{}, withdrawn{};
    std::string who, why;
  } recorder;

  explicit TestContext(Event event) {
    event_ = event;
    services_ = &recorder;
  }
  /// The context as a hook has it that declared `writes`.
  void lend(const char* id, Regions writes, const char* address = "") {
    lent = {id, writes, address};
    caller_ = &lent;
  }
  Caller lent{};
  using StepContext::batch_, StepContext::loss_, StepContext::output_;
};

}  // namespace

TEST_CASE("a region that does not exist at an event is refused by name") {
  TestContext context(Event::epoch_start);
  CHECK_THROWS_AS(context.batch(), PluginError);
  CHECK_THROWS_WITH(context.batch(), Contains("no batch at epoch_start"));
  CHECK_THROWS_WITH(context.network(), Contains("no model"));
  CHECK_THROWS_WITH(context.optimizer(), Contains("no optimizer"));
  CHECK_THROWS_WITH(context.output(), Contains("after_forward"));
  CHECK_THROWS_WITH(context.loss(), Contains("after_loss"));
}

TEST_CASE("a region is written only where it was declared") {
  TestContext context(Event::after_forward);
  Batch batch;
  context.batch_ = &batch;
  context.output_ = at::ones({2});
  context.loss_ = at::ones({});
  CHECK_THROWS_WITH(context.mutable_output(),
                    Contains("outputs at after_forward") && Contains("Region::outputs"));
  CHECK_THROWS_WITH(context.mutable_batch(), Contains("Region::batch"));
  context.lend("writer", Region::outputs);
  context.mutable_output() = at::ones({3});
  CHECK(context.output().numel() == 3);
  context.mutable_loss().add_(1);
  CHECK(context.loss().item<float>() == 2.0f);
  CHECK_THROWS_WITH(context.mutable_batch(), Contains("Region::batch"));
  context.lend("writer", Region::batch);
  CHECK(&context.mutable_batch() == &batch);
}

TEST_CASE("metrics and requests go to the host") {
  TestContext context(Event::eval_end);
  CHECK(context.metric("val/loss") == 0.5);
  CHECK(std::isnan(context.metric("none")));
  CHECK_THROWS_WITH(context.request(Control::stop_run, "enough"), Contains("Region::control"));
  CHECK_THROWS_WITH(context.withdraw(Control::stop_run), Contains("Region::control"));
  context.lend("watcher", Region::control, "hooks.watcher");
  context.request(Control::stop_run, "enough");
  CHECK(context.recorder.who == "watcher");
  CHECK(context.recorder.asked == Control::stop_run);
  CHECK(context.recorder.why == "enough");
  context.withdraw(Control::stop_run);
  CHECK(context.recorder.who == "hooks.watcher");
  CHECK(context.recorder.withdrawn == Control::stop_run);
}

}  // namespace context_tests
