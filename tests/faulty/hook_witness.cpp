// Writes down which samples each step sees: what a test compares with what there is to see.
#include <fstream>

#include <trainyard/batch.hpp>
#include <trainyard/hook.hpp>

namespace {

using namespace trainyard;

class Witness final : public Hook {
 public:
  struct Options {
    std::string file;
  };
  static void describe(Manifest<Options>& m) {
    m.name("witness").version("1.0.0").summary("Writes a line a step: its number, then its samples.");
    m.option("file", &Options::file, "that it appends to").required();
    m.hook<&Witness::batch_start>(Event::batch_start);
  }
  explicit Witness(const Options& options) : out_(options.file, std::ios::app) {}
  void batch_start(StepContext& context) {
    out_ << context.step_number();
    for (const std::int64_t index : context.batch().indices) out_ << ' ' << index;
    out_ << '\n' << std::flush;
  }

 private:
  std::ofstream out_;
};

}  // namespace

TRAINYARD_PLUGIN(Witness)
