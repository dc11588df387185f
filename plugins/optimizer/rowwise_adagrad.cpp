// Adagrad with one sum of squares for a row of an embedding table in place of one for each element (RWSAdagrad
// in the code of Naumov et al., arXiv 1906.00091). With t the updates so far:
//   g <- g + weight_decay * w
//   s <- s + mean of g^2 over the row
//   w <- w - lr / (1 + (t - 1) lr_decay) * g / (sqrt(s) + eps)
// A row without gradient keeps its bits where weight_decay is 0. Parameters that are no such table are
// updated by Adagrad.
#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/add.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/reciprocal.h>

#include <trainyard/helpers/slot_optimizer.hpp>
#include <trainyard/pattern.hpp>

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
    UpdateLists rest;
    rest.slots.resize(1);
    for (std::size_t i = 0; i < lists.params.size(); ++i) {
      const at::Tensor& sum = lists.slots[0][i];
      if (sum.dim() == 1 && lists.params[i].dim() == 2) {
        update_table(lists.params[i], lists.grads[i], sum, rate, values.weight_decay);
        continue;
      }
      rest.params.push_back(lists.params[i]);
      rest.grads.push_back(lists.grads[i]);
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

  void update_table(const at::Tensor& table, const at::Tensor& grad, const at::Tensor& sum, double rate,
                    double weight_decay) const {
    const at::Tensor g = weight_decay == 0.0 ? grad : at::add(grad, table, weight_decay);
    if (table.is_cpu() && table.scalar_type() == at::kFloat) return update_rows<float>(table, g, sum, rate);
    if (table.is_cpu() && table.scalar_type() == at::kDouble) return update_rows<double>(table, g, sum, rate);
    const at::Tensor norm = at::linalg_vector_norm(g, 2, at::IntArrayRef{1});
    sum.addcmul_(norm, norm, 1.0 / static_cast<double>(table.size(1)));
    table.addcmul_(g, sum.sqrt().add_(options_.eps).reciprocal_().unsqueeze(1), -rate);
  }

  /// The same, without a look at the rows of the table that have no gradient: nearly all of a large one.
  template <class Number>
  void update_rows(const at::Tensor& table, const at::Tensor& gradient, const at::Tensor& sums,
                   double rate) const {
    const at::Tensor dense = gradient.contiguous();
    const auto width = table.size(1);
    const auto* grads = dense.const_data_ptr<Number>();
    auto* weights = table.mutable_data_ptr<Number>();
    auto* sum = sums.mutable_data_ptr<Number>();
    at::parallel_for(0, table.size(0), 1 + (1 << 16) / width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const Number* const g = grads + row * width;
        Number squares = 0;
        for (std::int64_t i = 0; i < width; ++i) squares += g[i] * g[i];
        if (squares == Number{0}) continue;
        sum[row] += squares / static_cast<Number>(width);
        const auto step = static_cast<Number>(rate / (std::sqrt(sum[row]) + options_.eps));
        Number* const w = weights + row * width;
        for (std::int64_t i = 0; i < width; ++i) w[i] -= step * g[i];
      }
    });
  }

  Options options_;
  std::vector<StepTensors> steps_;
};

}  // namespace

TRAINYARD_PLUGIN(RowwiseAdagrad)
