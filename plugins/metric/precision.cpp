// Of the samples that are said to be of a class, the share that is.
#include "class_counts.hpp"

namespace {

using namespace trainyard;

class Precision final : public metrics::ClassShares {
 public:
  static void describe(Manifest<Options>& m) {
    m.name("precision").version("1.0.0").summary("Share of what is said to be a class that is of it.");
    describe_options(m);
  }
  explicit Precision(const Options& options) : ClassShares(options, "precision") {}

 private:
  double share(const Count& of) const override { return ratio(of.both, of.said); }
};

}  // namespace

TRAINYARD_PLUGIN(Precision)
