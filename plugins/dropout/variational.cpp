// Variational dropout of sequences (Gal and Ghahramani, "A theoretically grounded application of dropout in
// recurrent neural networks", NeurIPS 2016, section 4; "locked" in AWD-LSTM): one mask a sequence, the same
// at all its time steps; scaled by 1 / (1 - p).
#include <ATen/ops/mul.h>

#include <trainyard/dropout.hpp>

#include <trainyard/helpers/dropout_masks.hpp>

namespace {

using namespace trainyard;

class Variational final : public Dropout {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("variational").version("1.0.0").summary("Features of a sequence are dropped at all time steps.");
  }
  explicit Variational(const Options&) {}

  void open(const DropoutPlaces& places) override {
    for (const DropoutSite& site : places.sites) {
      const bool sequence = site.rank == 3 && site.axis == 2, folded = site.rank == 2 && site.rows > 1;
      if (site.active && !sequence && !folded)
        throw ConfigError("model.dropout: \"" + site.id +
                          "\" has no sequences [batch, time, features], over which variational dropout keeps "
                          "its mask; name sites that have in model.dropout.sites");
      rows_.push_back(folded ? site.rows : 0);
    }
  }

  at::Tensor apply(const at::Tensor& x, std::size_t site, const DropoutCall& call) override {
    if (rows_[site] > 0) return locked(by_sample(x, rows_[site]), call).flatten(0, 1);
    return locked(x, call);
  }

 private:
  at::Tensor locked(const at::Tensor& x, const DropoutCall& call) {
    return at::mul(x, masks_.inverted(shared_over_positions(x, 2), 1.0 - call.p, x, call.random));
  }

  std::vector<std::int64_t> rows_;  ///< of each sample, where they are folded; 0: they are not
  DropoutMasks masks_;
};

}  // namespace

TRAINYARD_PLUGIN(Variational)
