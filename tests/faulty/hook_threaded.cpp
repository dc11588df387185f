// Goes wrong on a thread of its own.
#include <trainyard/hook.hpp>
#include <trainyard/host.hpp>

#include "fault.hpp"

namespace {

using namespace trainyard;

class Threaded final : public Hook {
 public:
  struct Options {
    std::string way = "nothing";
    std::int64_t step = 0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("threaded").version("1.0.0").summary("Goes wrong on a thread of its own.");
    m.option("way", &Options::way, "how it goes wrong").one_of(faulty::ways);
    m.option("step", &Options::step, "behind which the thread begins; 0: ahead of the first").min(0);
    m.hook<&Threaded::fit_start>(Event::fit_start);
    m.hook<&Threaded::batch_end>(Event::batch_end);
  }
  explicit Threaded(const Options& options) : options_(options) {}
  void fit_start(StepContext&) { begin_at(0); }
  void batch_end(StepContext& context) {
    begin_at(context.step_number());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

 private:
  void begin_at(std::int64_t step) {
    if (step == options_.step)
      thread_ = host().thread("side", [this](std::stop_token) { faulty::go_wrong(options_.way); });
  }

  Options options_;
  std::shared_ptr<void> thread_;
};

}  // namespace

TRAINYARD_PLUGIN(Threaded)
