// Writes down how much memory the process has resident as a run goes on: a line every so many steps, with the step
// and the KiB.
#include <fstream>

#include <trainyard/hook.hpp>

namespace {

using namespace trainyard;

class Resident final : public Hook {
 public:
  struct Options {
    std::string file;
    std::int64_t period = 100;
  };
  static void describe(Manifest<Options>& m) {
    m.name("resident").version("1.0.0").summary("Writes down how much memory the process has.");
    m.option("file", &Options::file, "that it writes").required();
    m.option("period", &Options::period, "steps from one line to the next").min(1);
    m.hook<&Resident::batch_end>(Event::batch_end);
  }
  explicit Resident(const Options& options) : options_(options), out_(options.file) {}

  void batch_end(StepContext& context) {
    const std::int64_t step = context.step_number() + 1;
    if (step % options_.period == 0) out_ << step << ' ' << resident() << std::endl;
  }

 private:
  static std::int64_t resident() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
      if (word == "VmRSS:") {
        std::int64_t kib = 0;
        status >> kib;
        return kib;
      }
    return 0;
  }

  const Options options_;
  std::ofstream out_;
};

}  // namespace

TRAINYARD_PLUGIN(Resident)
