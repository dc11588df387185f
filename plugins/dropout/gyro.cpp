// Gyro dropout (Lee et al., MLSys 2022): sigma sub-networks are drawn once. tau of them at
// a time are trained, each on its own slice of the batch, for a long stretch of steps; then the next tau.
// Each is trained steadily, so that they differ more and average better than those of dropout that is drawn
// anew at every step.
//
// A sub-network is one mask across all sites, and each is trained for as long as the others (draw =
// "partition"). The published code draws with replacement, for each site by itself, which leaves 37 % of the
// masks untrained and trains mixtures of the rest; that is an option.
#include <trainyard/helpers/dropout_bank.hpp>

namespace {

using namespace trainyard;

class Gyro final : public Dropout {
 public:
  using Options = BankOptions;
  static void describe(Manifest<Options>& m) {
    m.name("gyro").version("1.0.0").summary("A bank of fixed masks, a few of which are trained at a time.");
    m.needs("steps");
    Options::describe(m);
    m.hook<&Gyro::fit_start>(Event::fit_start);
  }
  explicit Gyro(const Options& options) : bank_(options, 1) {}

  void open(const DropoutPlaces& places) override { bank_.open(places.sites, host()); }
  void fit_start(StepContext& context) { bank_.start(context, host()); }

  at::Tensor apply(const at::Tensor& x, std::size_t site, const DropoutCall& call) override {
    return bank_.apply(x, site, call);
  }

  void save(StateWriter& state) const override { bank_.save(state); }
  void load(const StateReader& state) override { bank_.load(state); }

 private:
  MaskBank bank_;
};

}  // namespace

TRAINYARD_PLUGIN(Gyro)
