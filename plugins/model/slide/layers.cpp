#include "layers.hpp"

#include <atomic>
#include <bit>
#include <span>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_sparse_csr_tensor_unsafe.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <trainyard/error.hpp>

#include "kernels/cpu/row_sets.hpp"
#include "kernels/cpu/rows.hpp"

namespace slide {
namespace {

namespace kernels = trainyard::kernels;
using at::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

constexpr std::int64_t rows_a_task = 64;  // of a gradient

kernels::RowMatrix matrix(const Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), tensor.size(1)};
}
kernels::HalfMatrix half_matrix(const Tensor& tensor) {
  return {static_cast<const std::uint16_t*>(tensor.const_data_ptr()), tensor.size(1)};
}
bool in_halves(const Tensor& table) {
  return table.scalar_type() == at::kBFloat16;
}

/// Calls with the number of a sample, the place of its first entry, and the count of these.
template <class Use>
void each_sample(const RowSets& sets, const Use& use) {
  const auto offsets = numbers(sets.offsets);
  at::parallel_for(0, sets.samples(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t s = begin; s < end; ++s) {
      const auto at = static_cast<std::size_t>(s);
      use(s, offsets[at], offsets[at + 1] - offsets[at]);
    }
  });
}

Tensor scaled_sums(const Tensor& table, const float* bias, const RowSets& sets, const float* scales) {
  Tensor out = at::empty({sets.samples(), table.size(1)}, at::kFloat);
  auto* const to = out.mutable_data_ptr<float>();
  const kernels::RowKernels& row = kernels::row_kernels();
  const std::int64_t* const rows = sets.rows.const_data_ptr<std::int64_t>();
  each_sample(sets, [&](std::int64_t s, std::int64_t first, std::int64_t count) {
    float* const out = to + s * table.size(1);
    if (in_halves(table))
      row.half_sum(out, bias, scales + first, half_matrix(table), rows + first, count);
    else
      row.sum(out, bias, scales + first, matrix(table), rows + first, count);
  });
  return out;
}

/// Of the rows that samples use, [rows, ...], each from its own values.
Tensor sparse(std::span<const std::int64_t> rows, const Tensor& values, at::IntArrayRef sizes) {
  const Tensor index = at::empty({1, std::ssize(rows)}, at::kLong);
  std::copy(rows.begin(), rows.end(), index.mutable_data_ptr<std::int64_t>());
  return at::_sparse_coo_tensor_unsafe(index, values, sizes, values.options().layout(at::kSparse),
                                       /*is_coalesced=*/true);
}

/// What the samples give a matrix and a bias: sums of scales[entry] dense[sample], and of scales[entry].
struct OrderedGradients {
  kernels::RowUses uses;
  std::vector<float> scales;  ///< in the order of the uses

  OrderedGradients(const RowSets& sets, const float* by_entry, std::int64_t rows)
      : uses(kernels::uses_of({numbers(sets.offsets), numbers(sets.rows)}, rows)), scales(uses.entry.size()) {
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = by_entry[uses.entry[i]];
  }

  template <class Use>
  void each_row(const Use& use) const {
    at::parallel_for(0, std::ssize(uses.rows), rows_a_task, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const auto at = static_cast<std::size_t>(r);
        use(r, static_cast<std::size_t>(uses.offsets[at]), uses.offsets[at + 1] - uses.offsets[at]);
      }
    });
  }

  Tensor of_matrix(const Tensor& dense, at::IntArrayRef sizes) const {
    Tensor values = at::empty({std::ssize(uses.rows), dense.size(1)}, at::kFloat);
    auto* const to = values.mutable_data_ptr<float>();
    const kernels::RowKernels& row = kernels::row_kernels();
    each_row([&](std::int64_t r, std::size_t first, std::int64_t count) {
      row.sum(to + r * dense.size(1), nullptr, scales.data() + first, matrix(dense),
              uses.sample.data() + first, count);
    });
    return sparse(uses.rows, values, sizes);
  }

  Tensor of_bias(at::IntArrayRef sizes) const {
    Tensor values = at::empty({std::ssize(uses.rows)}, at::kFloat);
    auto* const to = values.mutable_data_ptr<float>();
    each_row([&](std::int64_t r, std::size_t first, std::int64_t count) {
      float sum = 0.0f;
      for (std::int64_t i = 0; i < count; ++i) sum += scales[first + static_cast<std::size_t>(i)];
      to[r] = sum;
    });
    return sparse(uses.rows, values, sizes);
  }
};

/// The numbers of rows that are used, ascending, and the place of each among them.
class UsedRows {
 public:
  UsedRows(std::span<const std::int64_t> uses, std::int64_t rows)
      : words_(static_cast<std::size_t>(rows / 64 + 1)) {
    for (const std::int64_t row : uses) words_[word(row)].used |= bit(row);
    for (std::size_t w = 0; w < words_.size(); ++w) {
      words_[w].before = std::ssize(rows_);
      for (std::uint64_t left = words_[w].used; left != 0; left &= left - 1)
        rows_.push_back(static_cast<std::int64_t>(w) * 64 + std::countr_zero(left));
    }
  }
  const std::vector<std::int64_t>& rows() const { return rows_; }
  std::int64_t place(std::int64_t row) const {
    const Word& of = words_[word(row)];
    return of.before + std::popcount(of.used & (bit(row) - 1));
  }

 private:
  struct Word {
    std::uint64_t used = 0;
    std::int64_t before = 0;  ///< used rows of the words before it
  };
  static std::size_t word(std::int64_t row) { return static_cast<std::size_t>(row) / 64; }
  static std::uint64_t bit(std::int64_t row) { return std::uint64_t{1} << (row % 64); }

  std::vector<Word> words_;
  std::vector<std::int64_t> rows_;
};

/// A sum that others add to at the same time: a race, but no data race. An addition in one piece would need a
/// locked instruction for each number.
void add_racing(float& sum, float value) {
  const std::atomic_ref<float> shared(sum);
  shared.store(shared.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

/// The same sums by threads that do not wait for each other.
struct HogwildGradients {
  const RowSets& sets;
  const float* by_entry;
  UsedRows used;

  HogwildGradients(const RowSets& of, const float* scales, std::int64_t rows)
      : sets(of), by_entry(scales), used(numbers(of.rows), rows) {}

  Tensor of_matrix(const Tensor& dense, at::IntArrayRef sizes) const {
    const std::int64_t width = dense.size(1);
    Tensor values = at::zeros({std::ssize(used.rows()), width}, at::kFloat);
    auto* const to = values.mutable_data_ptr<float>();
    const auto* const from = dense.const_data_ptr<float>();
    each_entry([&](std::int64_t sample, std::int64_t place, float scale) {
      for (std::int64_t k = 0; k < width; ++k)
        add_racing(to[place * width + k], scale * from[sample * width + k]);
    });
    return sparse(used.rows(), values, sizes);
  }

  Tensor of_bias(at::IntArrayRef sizes) const {
    Tensor values = at::zeros({std::ssize(used.rows())}, at::kFloat);
    auto* const to = values.mutable_data_ptr<float>();
    each_entry([&](std::int64_t, std::int64_t place, float scale) { add_racing(to[place], scale); });
    return sparse(used.rows(), values, sizes);
  }

 private:
  template <class Use>
  void each_entry(const Use& use) const {
    const auto rows = numbers(sets.rows);
    each_sample(sets, [&](std::int64_t s, std::int64_t first, std::int64_t count) {
      for (std::int64_t e = first; e < first + count; ++e)
        use(s, used.place(rows[static_cast<std::size_t>(e)]), by_entry[e]);
    });
  }
};

/// Calls with the gradients that are summed up in this way.
template <class Use>
void with_gradients(Sums sums, const RowSets& sets, const float* by_entry, std::int64_t rows,
                    const Use& use) {
  if (sums == Sums::hogwild) return use(HogwildGradients(sets, by_entry, rows));
  use(OrderedGradients(sets, by_entry, rows));
}

void require_first_derivative() {
  if (at::GradMode::is_enabled())
    throw trainyard::PluginError("the layers of slide are differentiated once only");
}

class WeightedRowsBackward final : public torch::autograd::Node {
 public:
  WeightedRowsBackward(RowSets sets, Tensor scales, std::vector<std::int64_t> table, Sums sums)
      : sets_(std::move(sets)), scales_(std::move(scales)), table_(std::move(table)), sums_(sums) {}

  std::string name() const override { return "WeightedRowsBackward"; }

  variable_list apply(variable_list&& gradients) override {
    require_first_derivative();
    variable_list result(2);
    if (!gradients[0].defined()) return result;
    const Tensor gradient = gradients[0].contiguous();
    if (task_should_compute_output(0))
      with_gradients(sums_, sets_, scales_.const_data_ptr<float>(), table_.front(),
                     [&](const auto& sums) { result[0] = sums.of_matrix(gradient, table_); });
    if (task_should_compute_output(1)) result[1] = gradient.sum(0);
    return result;
  }

 private:
  RowSets sets_;
  Tensor scales_;
  std::vector<std::int64_t> table_;  ///< its sizes
  Sums sums_;
};

class ActiveLogitsBackward final : public torch::autograd::Node {
 public:
  ActiveLogitsBackward(RowSets sets, const Tensor& h, const Tensor& table, Sums sums)
      : sets_(std::move(sets)), h_(h, false), table_(table, false), sums_(sums) {}

  std::string name() const override { return "ActiveLogitsBackward"; }

  variable_list apply(variable_list&& gradients) override {
    require_first_derivative();
    variable_list result(3);
    if (!gradients[0].defined()) return result;
    const Tensor scales = of_entries(gradients[0]), table = table_.unpack();
    const auto* const by_entry = scales.const_data_ptr<float>();
    if (task_should_compute_output(0)) result[0] = scaled_sums(table, nullptr, sets_, by_entry);
    if (!task_should_compute_output(1) && !task_should_compute_output(2)) return result;
    with_gradients(sums_, sets_, by_entry, table.size(0), [&](const auto& sums) {
      if (task_should_compute_output(1)) {
        result[1] = sums.of_matrix(h_.unpack(), table.sizes());
        if (in_halves(table)) add_whole(table, std::exchange(result[1], {}));
      }
      if (task_should_compute_output(2)) result[2] = sums.of_bias({table.size(0)});
    });
    return result;
  }

  void release_variables() override {
    h_.reset_data();
    table_.reset_data();
  }

 private:
  /// Autograd would round the sums to the parameter's bfloat16 on their way.
  static void add_whole(const Tensor& parameter, const Tensor& gradient) {
    Tensor& kept = Tensor(parameter).mutable_grad();
    kept = kept.defined() ? at::add(kept, gradient) : gradient;
  }

  /// A loss gives the gradient in the layout of the logits, or whole.
  Tensor of_entries(const Tensor& gradient) const {
    if (gradient.layout() == at::kSparseCsr && gradient.values().numel() == sets_.rows.numel())
      return gradient.values().to(at::kFloat).contiguous();
    if (gradient.layout() != at::kStrided)
      throw trainyard::PluginError(
          "the gradient of sparse logits is neither whole nor stored where they are: the loss must give "
          "one of these");
    const Tensor dense = gradient.to(at::kFloat).contiguous();
    Tensor entries = at::empty({sets_.rows.numel()}, at::kFloat);
    const auto* const from = dense.const_data_ptr<float>();
    auto* const to = entries.mutable_data_ptr<float>();
    const auto* const rows = sets_.rows.const_data_ptr<std::int64_t>();
    each_sample(sets_, [&](std::int64_t s, std::int64_t first, std::int64_t count) {
      for (std::int64_t e = first; e < first + count; ++e) to[e] = from[s * dense.size(1) + rows[e]];
    });
    return entries;
  }

  RowSets sets_;
  SavedVariable h_, table_;
  Sums sums_;
};

}  // namespace

Tensor weighted_rows(const Tensor& table, const Tensor& bias, const RowSets& sets, const Tensor& scales,
                     Sums sums) {
  Tensor out = scaled_sums(table, bias.const_data_ptr<float>(), sets, scales.const_data_ptr<float>());
  if (!torch::autograd::compute_requires_grad(table, bias)) return out;
  const auto backward = std::make_shared<WeightedRowsBackward>(sets, scales, table.sizes().vec(), sums);
  backward->set_next_edges(torch::autograd::collect_next_edges(table, bias));
  torch::autograd::set_history(out, backward);
  return out;
}

Tensor active_logits(const Tensor& h, const Tensor& table, const Tensor& bias, const RowSets& sets,
                     Sums sums) {
  const Tensor x = h.contiguous();
  Tensor values = at::empty({sets.rows.numel()}, at::kFloat);
  auto* const to = values.mutable_data_ptr<float>();
  const auto* const from = x.const_data_ptr<float>();
  const auto* const biases = bias.const_data_ptr<float>();
  const auto* const rows = sets.rows.const_data_ptr<std::int64_t>();
  const kernels::RowKernels& row = kernels::row_kernels();
  each_sample(sets, [&](std::int64_t s, std::int64_t first, std::int64_t count) {
    if (in_halves(table))
      row.half_dots(to + first, from + s * x.size(1), half_matrix(table), rows + first, count);
    else
      row.dots(to + first, from + s * x.size(1), matrix(table), rows + first, count);
    for (std::int64_t e = first; e < first + count; ++e) to[e] += biases[rows[e]];
  });
  Tensor out =
      at::_sparse_csr_tensor_unsafe(sets.offsets, sets.rows, values, {sets.samples(), table.size(0)});
  if (!torch::autograd::compute_requires_grad(x, table, bias)) return out;
  const auto backward = std::make_shared<ActiveLogitsBackward>(sets, x, table, sums);
  backward->set_next_edges(torch::autograd::collect_next_edges(x, table, bias));
  torch::autograd::set_history(out, backward);
  return out;
}

}  // namespace slide
