// Adagrad with one sum of squares for a row of an embedding table in place of one for each element (RWSAdagrad
// in the code of Naumov et al., arXiv 1906.00091). With t the updates so far:
//   g <- g + weight_decay * w
//   s <- s + mean of g^2 over the row
//   w <- w - lr / (1 + (t - 1) lr_decay) * g / (sqrt(s) + eps)
// A row without gradient keeps its bits where weight_decay is 0, so that sparse gradients are dense ones with
// zeros. Parameters that are no such table are updated by Adagrad.
#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/add.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/reciprocal.h>

#include <trainyard/pattern.hpp>

#include "sparse_rows.hpp"

namespace {

using namespace trainyard;

class RowwiseAdagrad final : public SlotOptimizer {
 public:
  struct Options {
    std::vector<std::string> tables = {"*"};
    double lr_decay = 0.0;
    double initial_accumulator = 0.0;
    double eps = 1e-10;
  };
  static void describe(Manifest<Options>& m) {
    m.name("rowwise_adagrad")
        .version("1.0.0")
        .summary("Adagrad with one sum of squares a row: for embedding tables.");
    m.provides("sparse_rows where weight_decay = 0");
    m.option("tables", &Options::tables,
             "names of the matrices that have one sum a row, * and ? allowed; others have one an element");
    m.option("lr_decay", &Options::lr_decay, "the rate of update t is divided by 1 + (t - 1) lr_decay")
        .min(0.0);
    m.option("initial_accumulator", &Options::initial_accumulator, "the sum of squares at the start")
        .min(0.0);
    m.option("eps", &Options::eps, "added to the denominator").above(0.0);
  }
  explicit RowwiseAdagrad(const Options& options)
      : SlotOptimizer({{"sum", options.initial_accumulator}}), options_(options) {}

  void open(std::vector<ParamGroup> groups) override {
    for (const std::string& pattern : options_.tables) check(pattern, groups);
    SlotOptimizer::open(std::move(groups));
    steps_.resize(groups_.size());
  }

 protected:
  bool takes_sparse() const override { return true; }

  at::Tensor make_slot(const Slot& slot, const std::string& name, const at::Tensor& param) const override {
    const bool table =
        param.dim() == 2 && std::any_of(options_.tables.begin(), options_.tables.end(),
                                        [&](const std::string& pattern) { return fits(pattern, name); });
    return table ? at::full({param.size(0)}, slot.initial, param.options().requires_grad(false))
                 : SlotOptimizer::make_slot(slot, name, param);
  }

  void update(std::size_t group, UpdateLists& lists, std::int64_t updates) override {
    const ParamGroup& values = groups_[group];
    const double rate = values.lr / (1.0 + static_cast<double>(updates - 1) * options_.lr_decay);
    UpdateLists whole = lists;
    if (optimizers::any_sparse(lists))
      whole =
          optimizers::update_rows(lists, [&](const at::Tensor& param, const std::vector<at::Tensor>& slots,
                                             const at::Tensor& rows, const at::Tensor& gradient) {
            optimizers::require_no_decay(values.weight_decay);
            if (has_row_sums(param, slots[0]))
              update_table(param, gradient, rows, slots[0], rate);
            else
              optimizers::adagrad_rows(param, slots[0], rows, gradient, rate, options_.eps);
          });
    UpdateLists rest;
    rest.slots.resize(1);
    for (std::size_t i = 0; i < whole.params.size(); ++i) {
      const at::Tensor &param = whole.params[i], &sum = whole.slots[0][i], &gradient = whole.grads[i];
      if (has_row_sums(param, sum)) {
        const double decay = values.weight_decay;
        update_table(param, decay == 0.0 ? gradient : at::add(gradient, param, decay), {}, sum, rate);
        continue;
      }
      rest.params.push_back(param);
      rest.grads.push_back(gradient);
      rest.slots[0].push_back(sum);
    }
    if (rest.params.empty()) return;
    at::_fused_adagrad_(rest.params, rest.grads, rest.slots[0], steps_[group].list(rest, updates), values.lr,
                        options_.lr_decay, values.weight_decay, options_.eps, /*maximize=*/false);
  }

 private:
  static void check(const std::string& pattern, const std::vector<ParamGroup>& groups) {
    for (const ParamGroup& group : groups)
      for (std::size_t i = 0; i < group.params.size(); ++i)
        if (group.params[i].dim() == 2 && fits(pattern, group.names[i])) return;
    throw ConfigError("optimizer.tables has \"" + pattern +
                      "\", which fits the name of no matrix: `trainyard model show` lists them");
  }

  static bool has_row_sums(const at::Tensor& param, const at::Tensor& sum) {
    return sum.dim() == 1 && param.dim() == 2;
  }

  /// `rows`: those that the gradient is of, each once; undefined: all of the table.
  void update_table(const at::Tensor& table, const at::Tensor& g, const at::Tensor& rows,
                    const at::Tensor& sums, double rate) const {
    if (table.is_cpu() && table.scalar_type() == at::kFloat)
      return update_rows<float>(table, g, rows, sums, rate);
    if (table.is_cpu() && table.scalar_type() == at::kDouble)
      return update_rows<double>(table, g, rows, sums, rate);
    const at::Tensor norm = at::linalg_vector_norm(g, 2, at::IntArrayRef{1});
    const at::Tensor sum = rows.defined() ? sums.index_select(0, rows) : sums;
    sum.addcmul_(norm, norm, 1.0 / static_cast<double>(table.size(1)));
    const at::Tensor factor = sum.sqrt().add_(options_.eps).reciprocal_().unsqueeze(1);
    if (!rows.defined()) return void(table.addcmul_(g, factor, -rate));
    sums.index_copy_(0, rows, sum);
    table.index_add_(0, rows, at::mul(g, factor), -rate);
  }

  /// The same, without a look at the rows of the table that have no gradient: nearly all of a large one.
  template <class Number>
  void update_rows(const at::Tensor& table, const at::Tensor& gradient, const at::Tensor& rows,
                   const at::Tensor& sums, double rate) const {
    const at::Tensor dense = gradient.contiguous();
    const at::Tensor numbers = rows.defined() ? rows.contiguous() : rows;
    const auto width = table.size(1);
    const auto* grads = dense.const_data_ptr<Number>();
    const std::int64_t* const number = rows.defined() ? numbers.const_data_ptr<std::int64_t>() : nullptr;
    auto* weights = table.mutable_data_ptr<Number>();
    auto* sum = sums.mutable_data_ptr<Number>();
    at::parallel_for(0, dense.size(0), 1 + (1 << 16) / width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const Number* const g = grads + i * width;
        Number squares = 0;
        for (std::int64_t k = 0; k < width; ++k) squares += g[k] * g[k];
        if (squares == Number{0}) continue;
        const std::int64_t row = number != nullptr ? number[i] : i;
        sum[row] += squares / static_cast<Number>(width);
        const auto step = static_cast<Number>(rate / (std::sqrt(sum[row]) + options_.eps));
        Number* const w = weights + row * width;
        for (std::int64_t k = 0; k < width; ++k) w[k] -= step * g[k];
      }
    });
  }

  Options options_;
  std::vector<StepTensors> steps_;
};

}  // namespace

TRAINYARD_PLUGIN(RowwiseAdagrad)
