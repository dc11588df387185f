// The harmonic mean of precision and recall of a class.
#include "class_counts.hpp"

namespace {

using namespace trainyard;

class F1 final : public metrics::ClassShares {
 public:
  static void describe(Manifest<Options>& m) {
    m.name("f1").version("1.0.0").summary("Harmonic mean of precision and recall.");
    describe_options(m);
  }
  explicit F1(const Options& options) : ClassShares(options, "f1") {}

 private:
  double share(const Count& of) const override { return ratio(2.0 * of.both, of.targets + of.said); }
};

}  // namespace

TRAINYARD_PLUGIN(F1)
