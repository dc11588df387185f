// Caught by run.long: a table of six steps is read at the seventh.
#include <vector>

#include <trainyard/hook.hpp>

using namespace trainyard;

class Seventh final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("seventh").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&Seventh::called>(Event::batch_end);
  }
  explicit Seventh(const Options&) {}

  void called(StepContext& context) {
    sum_ += table_.at(static_cast<std::size_t>(context.step_number() - 1));
  }

 private:
  std::vector<double> table_ = std::vector<double>(6, 1.0);
  double sum_ = 0.0;
};
TRAINYARD_PLUGIN(Seventh)
