// Caught by life.thousand: memory is given back twice.
#include <trainyard/hook.hpp>

using namespace trainyard;

class Twice final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("twice").version("1.0.0").summary("A plugin with a mistake.");
  }
  explicit Twice(const Options&) {}

  ~Twice() override {
    delete[] all_;
    delete[] view_;
  }

 private:
  double* all_ = new double[64]();
  double* view_ = all_;
};
TRAINYARD_PLUGIN(Twice)
