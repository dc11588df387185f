// Lays its stack into the heap for a moment, as kernels of oneDNN do, and is told to end in the middle: what
// lies beside a block of the heap is somebody else's.
#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <vector>

#include <trainyard/hook.hpp>

namespace {

using namespace trainyard;

class Elsewhere final : public Hook {
 public:
  struct Options {
    std::int64_t step = 5;
  };
  static void describe(Manifest<Options>& m) {
    m.name("elsewhere").version("1.0.0").summary("Gets SIGTERM while its stack lies in the heap.");
    m.option("step", &Options::step, "when").min(0);
    m.hook<&Elsewhere::before_forward>(Event::before_forward);
  }
  explicit Elsewhere(const Options& options) : options_(options) {}

  void before_forward(StepContext& context) {
    if (context.step_number() != options_.step) return;
    std::vector<unsigned char> heap(1 << 20);
    ucontext_t there, here;
    getcontext(&there);
    there.uc_stack.ss_sp = heap.data();
    there.uc_stack.ss_size = heap.size();
    there.uc_link = &here;
    makecontext(
        &there, [] { raise(SIGTERM); }, 0);
    swapcontext(&here, &there);
    // `raise` takes some hundred bytes; a handler has all registers of the processor saved first.
    constexpr std::ptrdiff_t little = 1024;
    if (std::any_of(heap.begin(), heap.end() - little, [](unsigned char byte) { return byte != 0; }))
      throw PluginError("a signal was handled on a stack in the heap");
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Elsewhere)
