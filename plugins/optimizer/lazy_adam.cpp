// Adam (adam.hpp) for gradients that are sparse: rows of a large matrix that a batch touched. A dense
// gradient is Adam's.
//   exact    Every row takes every step, with a gradient of zero where it has none, as Adam does; a row
//            without one takes them later, at once. It is brought up to date ahead of being read (ReadsRows,
//            LeavesRows), at its next gradient, and at the latest after `window` updates. The bits do not
//            depend on when.
//   else     A row without a gradient stays as it is, its averages too; t counts all steps
//            (torch.optim.SparseAdam).
#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <trainyard/context.hpp>
#include <trainyard/helpers/slot_optimizer.hpp>
#include <trainyard/helpers/sparse.hpp>
#include <trainyard/mixins/halves.hpp>
#include <trainyard/mixins/reads_rows.hpp>
#include <trainyard/network.hpp>

#include "kernels/cpu/adam.hpp"

namespace {

using namespace trainyard;

constexpr std::int32_t never = -1;  // of a row that had no gradient yet: its averages are zeros
constexpr std::int64_t rows_a_task = 256;

/// Where the numbers of a row lie; a parameter of one dimension has rows of one.
struct Table {
  float* weight = nullptr;  ///< null: in halves
  std::uint16_t *upper = nullptr, *lower = nullptr;
  float *exp_avg, *exp_avg_sq;
  std::int64_t rows, width;

  /// `lower_half` where the parameter is bfloat16.
  Table(const at::Tensor& param, const at::Tensor& lower_half, const at::Tensor& exp_avg_slot,
        const at::Tensor& exp_avg_sq_slot)
      : exp_avg(exp_avg_slot.mutable_data_ptr<float>()),
        exp_avg_sq(exp_avg_sq_slot.mutable_data_ptr<float>()),
        rows(param.size(0)),
        width(param.numel() / std::max<std::int64_t>(1, rows)) {
    if (!lower_half.defined()) {
      weight = param.mutable_data_ptr<float>();
      return;
    }
    upper = bits_of(param);
    lower = bits_of(lower_half);
  }

  /// Calls with the row, whose weights are whole meanwhile.
  template <class Use>
  void with_row(std::int64_t number, const Use& use) const {
    const std::int64_t at = number * width;
    kernels::AdamRow row{nullptr, exp_avg + at, exp_avg_sq + at, width};
    if (weight != nullptr) {
      row.weight = weight + at;
      return use(row);
    }
    thread_local std::vector<float> whole;
    whole.resize(static_cast<std::size_t>(width));
    row.weight = whole.data();
    for (std::int64_t i = 0; i < width; ++i) row.weight[i] = joined(upper[at + i], lower[at + i]);
    use(row);
    for (std::int64_t i = 0; i < width; ++i) {
      upper[at + i] = upper_of(row.weight[i]);
      lower[at + i] = lower_of(row.weight[i]);
    }
  }
};

class LazyAdam final : public SlotOptimizer, public LeavesRows {
 public:
  struct Options {
    std::vector<double> betas{0.9, 0.999};
    double eps = 1e-8;
    bool exact = true;
    std::int64_t window = 64;
  };
  static void describe(Manifest<Options>& m) {
    m.name("lazy_adam")
        .version("1.0.0")
        .summary("Adam that updates the rows of a matrix that have a gradient.");
    m.needs("fp32").provides("momentum").provides("lazy_rows").provides("sparse_rows");
    m.option("betas", &Options::betas, "decay of the averages of the gradient and of its square")
        .count(2)
        .min(0.0)
        .below(1.0);
    m.option("eps", &Options::eps, "added to the denominator").above(0.0);
    m.option("exact", &Options::exact,
             "rows without a gradient catch up with what Adam does to them; else they stay as they are");
    m.option("window", &Options::window, "updates after which all rows are brought up to date, at the latest")
        .range(1, 1 << 16);
    m.hook<&LazyAdam::follow>(Event::optimizer_ready);
    m.hook<&LazyAdam::follow>(Event::batch_start);
    m.hook<&LazyAdam::leave>(Event::swap_out);
  }
  explicit LazyAdam(const Options& options)
      : SlotOptimizer(options.exact ? std::vector<Slot>{{"exp_avg"}, {"exp_avg_sq"}, {"last"}, {"rates"}}
                                    : std::vector<Slot>{{"exp_avg"}, {"exp_avg_sq"}}),
        options_(options) {}

  void open(std::vector<ParamGroup> groups) override {
    SlotOptimizer::open(std::move(groups));
    steps_.resize(groups_.size());
  }
  bool has_momentum() const override { return true; }

  /// The network that is trained may be another one than a step ago.
  void follow(StepContext& context) {
    const auto* const holder = dynamic_cast<HoldsHalves*>(&context.network());
    halves_ = holder != nullptr ? holder->halves() : std::vector<Halves>();
    auto* const reader = dynamic_cast<ReadsRows*>(&context.network());
    if (!options_.exact || reader == nullptr) return;
    reader->on_read([this](const at::Tensor& parameter, std::span<const std::int64_t> rows) {
      for (std::size_t g = 0; g < groups_.size(); ++g)
        for (std::size_t i = 0; i < groups_[g].params.size(); ++i)
          if (groups_[g].params[i].is_same(parameter)) settle(g, i, rows);
    });
  }
  void leave(StepContext& context) {
    if (auto* const reader = dynamic_cast<ReadsRows*>(&context.network())) reader->on_read({});
  }
  void catch_up() override {
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (std::size_t i = 0; i < groups_[g].params.size(); ++i) settle(g, i, std::nullopt);
  }

 protected:
  bool takes_sparse() const override { return true; }
  bool takes_halves() const override { return true; }

  at::Tensor make_slot(const Slot& slot, const std::string& name, const at::Tensor& param) const override {
    const std::int64_t rows = param.dim() == 0 ? 1 : param.size(0);
    if (slot.name == "last") return at::full({rows}, never, at::kInt);
    if (slot.name == "rates") return at::zeros({options_.window, 2}, at::kDouble);
    if (param.scalar_type() == at::kBFloat16) return at::zeros(param.sizes(), at::kFloat);
    return SlotOptimizer::make_slot(slot, name, param);
  }

  void update(std::size_t group, UpdateLists& lists, std::int64_t updates) override {
    UpdateLists dense;
    dense.slots.resize(2);
    for (std::size_t i = 0; i < lists.params.size(); ++i) {
      if (lists.grads[i].is_sparse()) {
        update_rows(group, lists, i, updates);
        continue;
      }
      if (lists.params[i].scalar_type() == at::kBFloat16)
        throw ConfigError(
            "lazy_adam takes sparse gradients only of parameters of bfloat16, and a dense one has come: have "
            "the model keep whole weights");
      if (options_.exact) update_all_rows(group, lists, i, updates);
      dense.params.push_back(lists.params[i]);
      dense.grads.push_back(lists.grads[i]);
      for (std::size_t s = 0; s < 2; ++s) dense.slots[s].push_back(lists.slots[s][i]);
    }
    if (dense.params.empty()) return;
    const ParamGroup& values = groups_[group];
    at::_fused_adam_(dense.params, dense.grads, dense.slots[0], dense.slots[1], at::TensorList(),
                     steps_[group].list(dense, updates), values.lr, beta1(group), options_.betas[1],
                     values.weight_decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false, std::nullopt,
                     std::nullopt);
  }

 private:
  /// Of a parameter whose rows may be behind.
  struct Behind {
    Table table;
    std::int32_t* last;  ///< update up to which a row has come
    double* rates;       ///< [window, 2] of the last updates: learning rate, beta1
    double weight_decay;

    Behind(const UpdateLists& lists, std::size_t i, const at::Tensor& lower, double weight_decay_given)
        : table(lists.params[i], lower, lists.slots[0][i], lists.slots[1][i]),
          last(lists.slots[2][i].mutable_data_ptr<std::int32_t>()),
          rates(lists.slots[3][i].mutable_data_ptr<double>()),
          weight_decay(weight_decay_given) {}
  };

  /// Undefined for weights that are whole.
  at::Tensor lower_of_parameter(const at::Tensor& param) const {
    if (param.scalar_type() != at::kBFloat16) return {};
    for (const Halves& each : halves_)
      if (each.upper.is_same(param)) return each.lower;
    throw ConfigError(
        "lazy_adam updates a parameter of bfloat16 where the network has its lower halves, and this one has "
        "none: have the model keep whole weights");
  }

  double beta1(std::size_t group) const { return groups_[group].momentum.value_or(options_.betas[0]); }

  kernels::AdamStep adam_step(double lr, double beta, double weight_decay, std::int64_t update) const {
    return kernels::adam_step({lr, beta, options_.betas[1], options_.eps, weight_decay}, update);
  }

  /// The last updates up to number `update`, at most `window`: where their gradient is zero.
  std::vector<kernels::AdamStep> idle_steps(const Behind& of, std::int64_t update) const {
    std::vector<kernels::AdamStep> steps;
    for (std::int64_t t = std::max<std::int64_t>(1, update - options_.window + 1); t <= update; ++t) {
      const double* const rate = of.rates + t % options_.window * 2;
      steps.push_back(adam_step(rate[0], rate[1], of.weight_decay, t));
    }
    return steps;
  }

  /// Says how many updates a row is behind, and counts it as up to date.
  static std::int64_t take_behind(const Behind& of, std::int64_t row, std::int64_t update) {
    std::int32_t& last = of.last[row];
    if (last == never && of.weight_decay == 0.0) return 0;  // no step moves it
    return update - std::max(std::exchange(last, static_cast<std::int32_t>(update)), 0);
  }

  /// The last `behind` of the steps.
  static void idle(const Behind& of, std::int64_t row, const std::vector<kernels::AdamStep>& steps,
                   std::int64_t behind) {
    if (behind == 0) return;
    of.table.with_row(row, [&](const kernels::AdamRow& whole) {
      kernels::adam_kernels().idle(whole, steps.data() + (std::ssize(steps) - behind), behind);
    });
  }

  /// Those rows, each perhaps several times; or all.
  using SomeRows = std::optional<std::span<const std::int64_t>>;

  void settle(std::size_t group, std::size_t i, const SomeRows& rows) {
    const std::int64_t update = updates(group, i);
    if (!options_.exact || update == 0 || !by_rows(groups_[group].params[i])) return;
    const at::Tensor lower = lower_of_parameter(groups_[group].params[i]);
    settle(Behind(lists(group), i, lower, groups_[group].weight_decay), update, rows);
  }

  void settle(const Behind& behind, std::int64_t update, const SomeRows& rows) const {
    const std::vector<kernels::AdamStep> steps = idle_steps(behind, update);
    if (!rows) {
      at::parallel_for(0, behind.table.rows, rows_a_task, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
          idle(behind, row, steps, take_behind(behind, row, update));
      });
      return;
    }
    std::vector<std::pair<std::int64_t, std::int64_t>> due;  // row, and how far it is behind
    for (const std::int64_t row : *rows)
      if (const std::int64_t updates_behind = take_behind(behind, row, update); updates_behind > 0)
        due.emplace_back(row, updates_behind);
    at::parallel_for(0, std::ssize(due), rows_a_task, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
        idle(behind, due[i].first, steps, due[i].second);
    });
  }

  void note_rate(std::size_t group, double* rates, std::int64_t update) const {
    rates[update % options_.window * 2] = groups_[group].lr;
    rates[update % options_.window * 2 + 1] = beta1(group);
  }

  void update_rows(std::size_t group, const UpdateLists& lists, std::size_t i, std::int64_t update) const {
    const at::Tensor& param = lists.params[i];
    if (!by_rows(param) || lists.grads[i].sparse_dim() != 1)
      throw ConfigError("lazy_adam takes sparse gradients of float rows on the CPU, and a parameter of " +
                        param.toString() +
                        " has one: train in float on the CPU, or have the model give dense ones");
    const at::Tensor gradient = each_row_once(lists.grads[i]);
    const at::Tensor indices = gradient._indices().contiguous(), values = gradient._values().contiguous();
    const auto* const rows = indices.const_data_ptr<std::int64_t>();
    const auto* const numbers = values.const_data_ptr<float>();
    const ParamGroup& of = groups_[group];
    const kernels::AdamStep step = adam_step(of.lr, beta1(group), of.weight_decay, update);
    const at::Tensor lower = lower_of_parameter(param);
    const Table table(param, lower, lists.slots[0][i], lists.slots[1][i]);
    const std::optional<Behind> behind =
        options_.exact ? std::optional<Behind>(std::in_place, lists, i, lower, of.weight_decay)
                       : std::nullopt;
    std::vector<kernels::AdamStep> missed;
    if (behind) missed = idle_steps(*behind, update - 1);
    at::parallel_for(0, indices.numel(), rows_a_task, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        if (behind) idle(*behind, rows[r], missed, take_behind(*behind, rows[r], update - 1));
        table.with_row(rows[r], [&](const kernels::AdamRow& whole) {
          kernels::adam_kernels().step(whole, numbers + r * table.width, step);
        });
        if (behind) behind->last[rows[r]] = static_cast<std::int32_t>(update);
      }
    });
    if (!behind) return;
    note_rate(group, behind->rates, update);
    if (update % options_.window == 0) settle(*behind, update, std::nullopt);
  }

  /// Ahead of an update by a dense gradient: it finds all rows up to date and leaves them so.
  void update_all_rows(std::size_t group, const UpdateLists& lists, std::size_t i,
                       std::int64_t update) const {
    if (!by_rows(lists.params[i])) return;
    const Behind behind(lists, i, {}, groups_[group].weight_decay);
    settle(behind, update - 1, std::nullopt);
    std::fill_n(behind.last, behind.table.rows, static_cast<std::int32_t>(update));
    note_rate(group, behind.rates, update);
  }

  static bool by_rows(const at::Tensor& param) {
    return param.is_cpu() && param.dim() > 0 &&
           (param.scalar_type() == at::kFloat || param.scalar_type() == at::kBFloat16);
  }

  Options options_;
  std::vector<StepTensors> steps_;
  std::vector<Halves> halves_;  ///< of the network that is trained
};

}  // namespace

TRAINYARD_PLUGIN(LazyAdam)
