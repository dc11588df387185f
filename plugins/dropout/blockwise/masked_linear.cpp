#include "masked_linear.hpp"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <trainyard/error.hpp>

namespace blockwise {
namespace {

using at::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

Tensor with_close_columns(const Tensor& matrix) {
  return matrix.stride(1) == 1 ? matrix : matrix.contiguous();
}

class MaskedLinearBackward final : public torch::autograd::Node {
 public:
  MaskedLinearBackward(std::shared_ptr<Products> products, const Tensor& x, const Tensor& weight)
      : products_(std::move(products)), x_(x, false), weight_(weight, false) {}

  /// ReLU is undone by what came out of it.
  void save_output(const Tensor& y) { y_ = SavedVariable(y, true); }

  std::string name() const override { return "MaskedLinearBackward"; }

  variable_list apply(variable_list&& gradients) override {
    if (at::GradMode::is_enabled())
      throw PluginError("a linear layer whose dropped blocks are skipped is differentiated once only");
    variable_list result(3);
    if (!gradients[0].defined()) return result;
    const Tensor dy = with_close_columns(gradients[0]), x = with_close_columns(x_.unpack());
    const Tensor weight = with_close_columns(weight_.unpack()), y = y_.unpack(shared_from_this());
    if (task_should_compute_output(0)) {
      result[0] = at::empty(x.sizes(), dy.options());
      products_->input_gradient(dy, y, weight, result[0]);
    }
    if (task_should_compute_output(1) || task_should_compute_output(2)) {
      const at::TensorOptions sums = dy.options().dtype(at::kFloat);
      const Tensor dw = at::empty(weight.sizes(), sums), db = at::empty({weight.size(0)}, sums);
      products_->weight_gradient(dy, y, x, dw, db);
      result[1] = dw.to(weight.scalar_type());
      result[2] = db.to(weight.scalar_type());
    }
    return result;
  }

  void release_variables() override {
    x_.reset_data();
    weight_.reset_data();
    y_.reset_data();
  }

 private:
  std::shared_ptr<Products> products_;
  SavedVariable x_, weight_, y_;
};

}  // namespace

Tensor masked_linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                     const std::shared_ptr<Products>& products, bool relu) {
  std::shared_ptr<MaskedLinearBackward> backward;
  if (torch::autograd::compute_requires_grad(x, weight, bias)) {
    backward = std::make_shared<MaskedLinearBackward>(products, x, weight);
    backward->set_next_edges(torch::autograd::collect_next_edges(x, weight, bias));
  }
  Tensor y = at::empty({x.size(0), weight.size(0)}, x.options().requires_grad(false));
  products->forward(with_close_columns(x), with_close_columns(weight),
                    bias.defined() ? bias.contiguous() : bias, y);
  if (backward) {
    torch::autograd::set_history(y, backward);
    if (relu) backward->save_output(y);
  }
  return y;
}

}  // namespace blockwise
