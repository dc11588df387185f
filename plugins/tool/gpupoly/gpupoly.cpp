// Proves what a network does for all inputs of a box: of samples of a split, that no input near one has another
// class.
#include <trainyard/network.hpp>
#include <trainyard/tool.hpp>

#include "bounds.hpp"

namespace {

using namespace trainyard;

class GpuPoly final : public Tool {
 public:
  struct Options {
    double eps = 0.01;
  };
  static void describe(Manifest<Options>& m) {
    m.name("gpupoly").version("1.0.0").summary("Proves properties of a network for all inputs of a box.");
    m.option("eps", &Options::eps, "radius of the box around a sample").min(0);
  }
  explicit GpuPoly(const Options& options) : options_(options) {}

  Report run(Workshop&) override { return {}; }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(GpuPoly)
