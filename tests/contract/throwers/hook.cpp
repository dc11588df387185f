#include <trainyard/hook.hpp>

#include "thrower.hpp"

class HookThrower final : public trainyard::Hook {
 public:
  using Options = ::Options;
  using Event = trainyard::Event;
  static void describe(trainyard::Manifest<Options>& m) {
    constexpr Event ahead[] = {Event::init, Event::model_ready, Event::optimizer_ready};
    constexpr Event within[] = {
        Event::fit_start,   Event::epoch_start,      Event::before_fetch,    Event::after_fetch,
        Event::batch_start, Event::micro_start,      Event::before_forward,  Event::after_forward,
        Event::before_loss, Event::after_loss,       Event::before_backward, Event::after_backward,
        Event::micro_end,   Event::before_step,      Event::after_step,      Event::batch_end,
        Event::eval_start,  Event::eval_batch_start, Event::eval_batch_end,  Event::eval_end,
        Event::safe_point,  Event::epoch_end,        Event::fit_end};
    std::vector<std::string> before, during;
    for (const Event event : ahead) before.emplace_back(name(event));
    for (const Event event : within) during.emplace_back(name(event));
    describe_thrower(m, before, during);
    for (const Event event : ahead) m.hook<&HookThrower::called>(event);
    for (const Event event : within) m.hook<&HookThrower::called>(event);
  }
  explicit HookThrower(const Options& options) : options_(options) {}
  void called(trainyard::StepContext& context) { options_.at(std::string(name(context.event()))); }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(HookThrower)
