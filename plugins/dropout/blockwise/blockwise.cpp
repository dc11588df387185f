// Block-wise gyro dropout (Lee et al., MLSys 2022): the masks of the bank lie on blocks of units, so that the
// products of linear layers skip the blocks that are dropped on either side, in the forward pass and in both
// products of the backward pass. Elsewhere (channels of a convolution, types that have no kernel) the same
// masks are multiplied.
#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>

#include "kernels/cpu/threads.hpp"
#include "masked_linear.hpp"

namespace {

using namespace trainyard;
using namespace blockwise;
using at::Tensor;

/// The threads of LibTorch. at::parallel_for would bring a thread-local variable, which plugins do not have.
void on_threads(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& range) {
  const auto threads = static_cast<int>(std::min<std::int64_t>(count, at::get_num_threads()));
  kernels::in_parts(threads,
                    [&](int part, int parts) { range(count * part / parts, count * (part + 1) / parts); });
}

class Blockwise final : public Dropout, public FusesLinears {
 public:
  struct Options : BankOptions {
    std::int64_t block = 32;
  };
  static void describe(Manifest<Options>& m) {
    m.name("blockwise")
        .version("1.0.0")
        .summary("Gyro dropout of blocks of units; linear layers skip the work of what is dropped.");
    m.needs("steps");
    BankOptions::describe(m);
    m.option("block", &Options::block, "units that are dropped together: a multiple of 8").range(8, 128);
    m.hook<&Blockwise::fit_start>(Event::fit_start);
  }
  explicit Blockwise(const Options& options)
      : block_(options.block),
        bank_(options, options.block),
        gemm_(std::make_shared<kernels::MaskedGemm>(kernels::fastest_isa(), on_threads)) {
    if (block_ % 8 != 0)
      throw ConfigError("model.dropout.block = " + std::to_string(block_) + " is not a multiple of 8; take " +
                        std::to_string((block_ + 4) / 8 * 8));
  }

  void open(const DropoutPlaces& places) override {
    bank_.open(places.sites, host());
    for (const DropoutLinear& place : places.linears) linears_.push_back({place, {}});
  }
  void fit_start(StepContext& context) { bank_.start(context, host()); }

  Tensor apply(const Tensor& x, std::size_t site, const DropoutCall& call) override {
    return bank_.apply(x, site, call);
  }

  FusesLinears* fuses_linears() override { return this; }

  /// A layer into a few units, as the last of a classifier, is too thin to gain.
  bool fuses(std::size_t linear) const override {
    const DropoutLinear& layer = linears_[linear].place;
    return (layer.input_site || layer.output_site) && std::min(layer.in, layer.out) >= 64;
  }

  Tensor masked_linear(const Tensor& given_x, const Tensor& given_weight,
                       const std::optional<Tensor>& given_bias, std::size_t linear,
                       const DropoutCall& call) override {
    const DropoutLinear& layer = linears_[linear].place;
    const Tensor x = cast(given_x), weight = cast(given_weight);
    const Tensor bias = given_bias ? cast(*given_bias) : Tensor();
    if (const auto products = products_for(linears_[linear], x, call))
      return blockwise::masked_linear(x, weight, bias, products, layer.relu);
    const Tensor y = at::linear(x, weight, bias);
    const Tensor active = layer.relu ? at::relu(y) : y;
    return layer.output_site ? bank_.apply(active, *layer.output_site, call) : active;
  }

  void save(StateWriter& state) const override { bank_.save(state); }
  void load(const StateReader& state) override { bank_.load(state); }

 private:
  /// The products of a layer, and what they were made for.
  struct Ready {
    std::shared_ptr<const SiteMasks> masks_in, masks_out;
    std::vector<RowSlice> slices;
    at::TensorOptions options;
    std::shared_ptr<Products> products;
  };
  struct Linear {
    DropoutLinear place;
    Ready ready;
  };

  /// What autocast makes of an operand of a linear layer.
  static Tensor cast(const Tensor& tensor) {
    const at::DeviceType device = tensor.device().type();
    if (!at::autocast::is_autocast_enabled(device)) return tensor;
    return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), tensor, device);
  }

  /// Null where the masks are to be multiplied.
  std::shared_ptr<Products> products_for(Linear& linear, const Tensor& x, const DropoutCall& call) {
    const DropoutLinear& place = linear.place;
    Ready now{.options = x.options().requires_grad(false)};
    if (place.input_site) now.masks_in = bank_.masks(*place.input_site, call);
    if (place.output_site) now.masks_out = bank_.masks(*place.output_site, call);
    now.slices = bank_.slices(x.size(0), place.output_site ? *place.output_site : *place.input_site, call);
    Ready& ready = linear.ready;
    if (ready.masks_in == now.masks_in && ready.masks_out == now.masks_out && ready.slices == now.slices &&
        ready.options.type_equal(now.options) && ready.options.device() == now.options.device())
      return ready.products;
    const MaskedLayer layer{.in = place.in,
                            .out = place.out,
                            .block = block_,
                            .relu = place.relu,
                            .masks_in = now.masks_in,
                            .masks_out = now.masks_out,
                            .slices = now.slices};
    if (x.is_cpu() && x.scalar_type() == at::kFloat)
      now.products = cpu_products(layer, gemm_);
    else if (x.is_cuda())
      now.products = cuda_products(layer, x.scalar_type());
    ready = std::move(now);
    return ready.products;
  }

  std::int64_t block_;
  MaskBank bank_;
  std::shared_ptr<kernels::MaskedGemm> gemm_;
  std::vector<Linear> linears_;
};

}  // namespace

TRAINYARD_PLUGIN(Blockwise)
