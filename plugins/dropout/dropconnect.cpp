// DropConnect (Wan et al., "Regularization of neural networks using DropConnect", ICML 2013, section 3):
// weights are dropped, one mask a pass, in place of activations; scaled by 1 / (1 - p), so that evaluations
// take the mean weights. On the recurrent weights of an LSTM, sites = ["*.weight_hh"], it is the weight-drop
// of AWD-LSTM (Merity et al., "Regularizing and optimizing LSTM language models", ICLR 2018, section 2).
#include <ATen/ops/mul.h>

#include <trainyard/dropout.hpp>

#include "dropout_masks.hpp"

namespace {

using namespace trainyard;

class DropConnect final : public Dropout {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("dropconnect").version("1.0.0").summary("Weights are dropped, in place of activations.");
  }
  explicit DropConnect(const Options&) {}

  void open(const DropoutPlaces&) override {}
  bool masks_weights() const override { return true; }

  at::Tensor mask_weight(const at::Tensor& weight, std::size_t, const DropoutCall& call) override {
    return at::mul(weight, masks_.inverted(weight.sizes(), 1.0 - call.p, weight, call.random));
  }

 private:
  DropoutMasks masks_;
};

}  // namespace

TRAINYARD_PLUGIN(DropConnect)
