// Disturbs a run between its steps, for executors that fire no events inside of one: asks for a checkpoint, has one
// skipped, sleeps, writes NaN into the weights.
#include <limits>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

#include "fault.hpp"
#include "slow.hpp"

namespace {

using namespace trainyard;

class Between final : public Hook {
 public:
  struct Options {
    std::int64_t ask = -1, rank = -1, skip = -1, sleep = -1, poison = -1;
    double seconds = 2.0;
    std::string sign = "asleep";
  };
  static void describe(Manifest<Options>& m) {
    m.name("between").version("1.0.0").summary("Disturbs a run between its steps.");
    m.option("ask", &Options::ask, "step at whose end it asks for a checkpoint");
    m.option("rank", &Options::rank, "which alone asks; -1: all");
    m.option("skip", &Options::skip, "step whose checkpoint it has skipped");
    m.option("sleep", &Options::sleep, "step at whose end it sleeps");
    m.option("seconds", &Options::seconds, "how long").min(0.0);
    m.option("sign", &Options::sign, "file that tells that it sleeps");
    m.option("poison", &Options::poison, "step behind whose evaluation it writes NaN into the weights");
    m.hook<&Between::batch_end>(Event::batch_end).writes(Region::control);
    m.hook<&Between::before_checkpoint>(Event::before_checkpoint).writes(Region::control);
    m.hook<&Between::eval_end>(Event::eval_end).writes(Region::model);
  }
  explicit Between(const Options& options) : options_(options) {}

  void batch_end(StepContext& context) {
    if (context.step_number() == options_.sleep) nap_.take(options_.seconds, options_.sign);
    if (context.step_number() == options_.ask && faulty::on_rank(options_.rank))
      context.request(Control::checkpoint, "as it was told");
  }
  void before_checkpoint(StepContext& context) {
    if (context.clock().step == options_.skip) context.request(Control::skip_checkpoint, "as it was told");
  }
  void eval_end(StepContext& context) {
    if (context.clock().step != options_.poison) return;
    const at::NoGradGuard no_grad;
    context.network().parameters().back().tensor.fill_(std::numeric_limits<double>::quiet_NaN());
  }

 private:
  const Options options_;
  faulty::Nap nap_;
};

}  // namespace

TRAINYARD_PLUGIN(Between)
