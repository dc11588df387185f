// Of the samples of a class, the share that is said to be.
#include "class_counts.hpp"

namespace {

using namespace trainyard;

class Recall final : public metrics::ClassShares {
 public:
  static void describe(Manifest<Options>& m) {
    m.name("recall").version("1.0.0").summary("Share of a class that is said to be of it.");
    describe_options(m);
  }
  explicit Recall(const Options& options) : ClassShares(options, "recall") {}

 private:
  double share(const Count& of) const override { return ratio(of.both, of.targets); }
};

}  // namespace

TRAINYARD_PLUGIN(Recall)
