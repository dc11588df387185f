// Caught by options.bounds: one of the words that an option may be ends the process.
#include <cstdlib>
#include <string>

#include <trainyard/hook.hpp>

using namespace trainyard;

class Unfinished final : public Hook {
 public:
  struct Options {
    std::string mode = "mean";
  };
  static void describe(Manifest<Options>& m) {
    m.name("unfinished").version("1.0.0").summary("A plugin with a mistake.");
    m.option("mode", &Options::mode, "what is kept").one_of({"mean", "best"});
    m.hook<&Unfinished::called>(Event::batch_end);
  }
  explicit Unfinished(const Options& options) : mode_(options.mode) {}

  void called(StepContext&) {
    if (mode_ == "best") std::abort();
  }

 private:
  std::string mode_;
};
TRAINYARD_PLUGIN(Unfinished)
