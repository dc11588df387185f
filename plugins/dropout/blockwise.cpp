// Block-wise gyro dropout (Lee et al., MLSys 2022): the masks of the bank lie on blocks of units, so that the
// products of linear layers skip the blocks that are dropped on either side, in the forward pass and in both
// products of the backward pass. Elsewhere (channels of a convolution, other devices and types than float on
// the CPU) the same masks are multiplied.
#include <omp.h>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "dropout_bank.hpp"
#include "kernels/cpu/masked_gemm.hpp"

namespace {

using namespace trainyard;
using at::Tensor;
using kernels::MaskedGemm;
using kernels::MaskedLinear;

/// What is multiplied in a pass through a linear layer.
struct Plan {
  MaskedLinear layer;
  std::vector<kernels::Slice> slices;
  std::vector<std::int32_t> all_in, all_out;             ///< of a side without a site
  std::shared_ptr<const SiteMasks> masks_in, masks_out;  ///< hold the lists of blocks that slices refer to
};

template <class T>
kernels::Rows<T> rows_of(const Tensor& matrix) {
  if constexpr (std::is_const_v<T>)
    return {matrix.const_data_ptr<std::remove_const_t<T>>(), matrix.stride(0)};
  else
    return {matrix.mutable_data_ptr<T>(), matrix.stride(0)};
}

Tensor with_close_columns(const Tensor& matrix) {
  return matrix.stride(1) == 1 ? matrix : matrix.contiguous();
}

/// The threads of LibTorch. at::parallel_for would bring a thread-local variable, which plugins do not have.
void on_threads(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& range) {
  const auto threads = static_cast<int>(std::min<std::int64_t>(count, at::get_num_threads()));
  if (threads <= 1) return range(0, count);
#pragma omp parallel num_threads(threads)
  {
    const std::int64_t each = omp_get_thread_num(), all = omp_get_num_threads();
    range(count * each / all, count * (each + 1) / all);
  }
}

class MaskedLinearBackward final : public torch::autograd::Node {
 public:
  MaskedLinearBackward(std::shared_ptr<const Plan> plan, std::shared_ptr<MaskedGemm> gemm, const Tensor& x,
                       const Tensor& weight)
      : plan_(std::move(plan)), gemm_(std::move(gemm)), x_(x, false), weight_(weight, false) {}

  /// Only ReLU is undone by what came out of it.
  void save_output(const Tensor& y) {
    if (plan_->layer.relu) y_ = torch::autograd::SavedVariable(y, true);
  }

  std::string name() const override { return "MaskedLinearBackward"; }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (at::GradMode::is_enabled())
      throw PluginError("a linear layer whose dropped blocks are skipped is differentiated once only");
    torch::autograd::variable_list result(3);
    if (!gradients[0].defined()) return result;
    const Tensor dy = with_close_columns(gradients[0]), x = with_close_columns(x_.unpack());
    const Tensor weight = with_close_columns(weight_.unpack());
    const Tensor y = plan_->layer.relu ? y_.unpack(shared_from_this()) : dy;
    if (task_should_compute_output(0)) {
      result[0] = at::empty(x.sizes(), x.options().requires_grad(false));
      gemm_->input_gradient(plan_->layer, rows_of<const float>(dy), rows_of<const float>(y),
                            rows_of<const float>(weight), rows_of<float>(result[0]));
    }
    if (task_should_compute_output(1) || task_should_compute_output(2)) {
      result[1] = at::empty(weight.sizes(), dy.options());
      result[2] = at::empty({plan_->layer.out}, dy.options());
      gemm_->weight_gradient(plan_->layer, rows_of<const float>(dy), rows_of<const float>(y),
                             rows_of<const float>(x), rows_of<float>(result[1]),
                             result[2].mutable_data_ptr<float>());
    }
    return result;
  }

  void release_variables() override {
    x_.reset_data();
    weight_.reset_data();
    y_.reset_data();
  }

 private:
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<MaskedGemm> gemm_;
  torch::autograd::SavedVariable x_, weight_, y_;
};

class Blockwise final : public Dropout {
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
        gemm_(std::make_shared<MaskedGemm>(kernels::fastest_isa(), on_threads)) {
    if (block_ % 8 != 0)
      throw ConfigError("model.dropout.block = " + std::to_string(block_) + " is not a multiple of 8; take " +
                        std::to_string((block_ + 4) / 8 * 8));
  }

  void open(const DropoutPlaces& places) override {
    bank_.open(places.sites, host());
    linears_ = places.linears;
  }
  void fit_start(StepContext& context) { bank_.start(context, host()); }

  Tensor apply(const Tensor& x, std::size_t site, const DropoutCall& call) override {
    return bank_.apply(x, site, call);
  }

  /// A layer into a few units, as the last of a classifier, is too thin to gain.
  bool fuses(std::size_t linear) const override {
    const DropoutLinear& layer = linears_[linear];
    return (layer.input_site || layer.output_site) && std::min(layer.in, layer.out) >= 64;
  }

  Tensor masked_linear(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                       std::size_t linear, const DropoutCall& call) override {
    const DropoutLinear& layer = linears_[linear];
    const auto is_float = [](const Tensor& tensor) {
      return tensor.is_cpu() && tensor.scalar_type() == at::kFloat;
    };
    if (!is_float(x) || !is_float(weight) || at::autocast::is_autocast_enabled(at::kCPU)) {
      Tensor y = at::linear(x, weight, bias);
      if (layer.relu) y = at::relu(y);
      return layer.output_site ? bank_.apply(y, *layer.output_site, call) : y;
    }
    const auto plan = plan_of(layer, x.size(0), call);
    const Tensor packed_x = with_close_columns(x), packed_weight = with_close_columns(weight);
    std::shared_ptr<MaskedLinearBackward> backward;
    if (torch::autograd::compute_requires_grad(x, weight, bias)) {
      backward = std::make_shared<MaskedLinearBackward>(plan, gemm_, x, weight);
      backward->set_next_edges(torch::autograd::collect_next_edges(x, weight, bias.value_or(Tensor())));
    }
    Tensor y = at::empty({x.size(0), layer.out}, x.options().requires_grad(false));
    const Tensor packed_bias = bias ? bias->contiguous() : Tensor();
    gemm_->forward(plan->layer, rows_of<const float>(packed_x), rows_of<const float>(packed_weight),
                   bias ? packed_bias.const_data_ptr<float>() : nullptr, rows_of<float>(y));
    if (backward) {
      torch::autograd::set_history(y, backward);
      backward->save_output(y);
    }
    return y;
  }

  void save(StateWriter& state) const override { bank_.save(state); }
  void load(const StateReader& state) override { bank_.load(state); }

 private:
  std::shared_ptr<const Plan> plan_of(const DropoutLinear& linear, std::int64_t rows,
                                      const DropoutCall& call) {
    auto plan = std::make_shared<Plan>();
    plan->layer = {.in = linear.in, .out = linear.out, .block = block_, .relu = linear.relu};
    const auto masks = [&](const std::optional<std::size_t>& site, std::int64_t width,
                           std::vector<std::int32_t>& all) -> std::shared_ptr<const SiteMasks> {
      if (site) return bank_.masks(*site, call);
      all.resize(static_cast<std::size_t>((width + block_ - 1) / block_));
      std::iota(all.begin(), all.end(), 0);
      return nullptr;
    };
    plan->masks_in = masks(linear.input_site, linear.in, plan->all_in);
    plan->masks_out = masks(linear.output_site, linear.out, plan->all_out);
    if (plan->masks_out) plan->layer.scale = plan->masks_out->scale;
    const std::size_t site = linear.output_site ? *linear.output_site : *linear.input_site;
    for (const RowSlice& slice : bank_.slices(rows, site, call)) {
      const auto live = [&](const auto& of_site, const auto& all) -> std::span<const std::int32_t> {
        return of_site ? of_site->live[static_cast<std::size_t>(slice.mask)] : all;
      };
      plan->slices.push_back({.begin = slice.begin,
                              .end = slice.end,
                              .in = live(plan->masks_in, plan->all_in),
                              .out = live(plan->masks_out, plan->all_out)});
    }
    plan->layer.slices = plan->slices;
    return plan;
  }

  std::int64_t block_;
  MaskBank bank_;
  std::shared_ptr<MaskedGemm> gemm_;
  std::vector<DropoutLinear> linears_;
};

}  // namespace

TRAINYARD_PLUGIN(Blockwise)
