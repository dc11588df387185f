// Zoneout (Krueger et al., "Zoneout: Regularizing RNNs by randomly preserving hidden activations", ICLR 2017,
// section 3.2): units of a recurrent layer keep the state of the time step before, the cell's memory with
// probability p and its output with `output` p; evaluations mix both by their expectation. The new output is
// that of the new memory, not of the mixed one (equation 4).
#include <ATen/ops/lerp.h>
#include <ATen/ops/where.h>

#include <trainyard/dropout.hpp>

#include <trainyard/helpers/dropout_masks.hpp>

namespace {

using namespace trainyard;

class Zoneout final : public Dropout, public CarriesStates {
 public:
  struct Options {
    double output = 0.1;
  };
  static void describe(Manifest<Options>& m) {
    m.name("zoneout").version("1.0.0").summary("Recurrent units keep their state of the time step before.");
    m.option("output", &Options::output,
             "probability that the output is kept, over p, which is that of the cell's memory")
        .range(0.0, 1.0);
  }
  explicit Zoneout(const Options& options) : options_(options) {}

  void open(const DropoutPlaces&) override {}
  CarriesStates* carries_states() override { return this; }

  at::Tensor carry(const at::Tensor& before, const at::Tensor& now, std::size_t, bool memory,
                   std::int64_t time, const DropoutCall& call) override {
    const double p = memory ? call.p : call.p * options_.output;
    if (p == 0.0) return now;
    if (!call.pass.drops()) return at::lerp(before.to(now.scalar_type()), now, 1.0 - p);
    const auto number = static_cast<std::uint64_t>(2 * time + (memory ? 1 : 0));
    return at::where(masks_.kept(now.sizes(), 1.0 - p, now, call.random, number).to(at::kBool), now, before);
  }

 private:
  Options options_;
  DropoutMasks masks_;
};

}  // namespace

TRAINYARD_PLUGIN(Zoneout)
