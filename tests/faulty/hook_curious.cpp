// Logs what it is told of the run, and of the batches that it asks for.
#include <trainyard/batch.hpp>
#include <trainyard/hook.hpp>
#include <trainyard/host.hpp>

namespace {

using namespace trainyard;

class Curious final : public Hook {
 public:
  struct Options {
    std::vector<std::string> splits;
  };
  static void describe(Manifest<Options>& m) {
    m.name("curious").version("1.0.0").summary("Asks for batches of its own.");
    m.option("splits", &Options::splits, "of which it asks for two");
    m.hook<&Curious::look>(Event::fit_start);
    m.hook<&Curious::look>(Event::safe_point);
  }
  explicit Curious(const Options& options) : options_(options) {}

  void look(StepContext& context) {
    if (context.clock().step % 4 != 0) return;
    host().log(LogLevel::info, host().run().directory + " on " + host().run().device);
    for (const std::string& split : options_.splits) {
      std::string seen = split + ":";
      for (const Batch& batch : host().batches(split, 2)) {
        seen += " " + std::to_string(batch.input().size(0)) + " from " +
                std::to_string(batch.indices.front()) + " weighing " +
                std::to_string(static_cast<int>(batch.weight));
      }
      host().log(LogLevel::info, seen);
    }
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Curious)
