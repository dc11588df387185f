// Caught by static.initialisers: a table is built when the file is opened.
#include <map>
#include <string>

#include <trainyard/hook.hpp>

using namespace trainyard;

namespace {
const std::map<std::string, int> names = {{"one", 1}, {"two", 2}};
}

class EagerTable final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("eager_table").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&EagerTable::called>(Event::batch_end);
  }
  explicit EagerTable(const Options&) {}

  void called(StepContext&) { sum_ += names.size(); }

 private:
  std::size_t sum_ = 0;
};
TRAINYARD_PLUGIN(EagerTable)
