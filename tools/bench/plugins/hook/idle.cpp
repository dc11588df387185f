// Subscribes to all events that a training in one process fires, and does nothing: what observers cost.
#include <trainyard/hook.hpp>

namespace {

using namespace trainyard;

class Idle final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("idle").version("1.0.0").summary("An empty subscriber of 24 events; for benchmarks.");
    using enum Event;
    for (const Event event :
         {init,         model_ready,     optimizer_ready, fit_start,      epoch_start,   before_fetch,
          after_fetch,  batch_start,     micro_start,     before_forward, after_forward, before_loss,
          after_loss,   before_backward, after_backward,  micro_end,      before_step,   after_step,
          step_skipped, batch_end,       safe_point,      epoch_end,      fit_end,       shutdown})
      m.hook<&Idle::idle>(event);
  }
  explicit Idle(const Options&) {}

  void idle(StepContext&) {}
};

}  // namespace

TRAINYARD_PLUGIN(Idle)
