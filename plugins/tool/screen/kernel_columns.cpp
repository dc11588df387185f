#include "kernel_columns.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

namespace screen {
namespace {

constexpr std::size_t bytes_kept = std::size_t{512} << 20;
constexpr std::size_t columns_at_once = 128;

}  // namespace

KernelColumns::KernelColumns(const Matrix& rows, const std::vector<double>& mean, double gamma,
                             const Fitting& fitting)
    : table_(at::empty({static_cast<std::int64_t>(rows.rows), static_cast<std::int64_t>(rows.columns)},
                       at::kFloat)),
      squares_(rows.rows, 0.0F),
      gamma_(static_cast<float>(gamma)),
      room_(std::max<std::size_t>(3, bytes_kept / (rows.rows * sizeof(float)))),
      columns_(rows.rows) {
  auto* const out = table_.mutable_data_ptr<float>();
  for (std::size_t i = 0; i < rows.rows; ++i)
    for (std::size_t j = 0; j < rows.columns; ++j) {
      const auto value = static_cast<float>(rows.at(i, j) - mean[j]);
      out[i * rows.columns + j] = value;
      squares_[i] += value * value;
    }
  if (rows.rows > room_) return;
  for (std::size_t first = 0; first < rows.rows; first += columns_at_once) {
    fitting.check();
    compute(first, std::min(columns_at_once, rows.rows - first));
  }
}

void KernelColumns::compute(std::size_t first, std::size_t count) {
  const auto begin = static_cast<std::int64_t>(first), size = static_cast<std::int64_t>(count);
  const at::Tensor block = at::mm(table_.narrow(0, begin, size), table_.t());
  auto* const values = block.mutable_data_ptr<float>();
  for (std::size_t c = 0; c < count; ++c)
    for (std::size_t i = 0; i < rows(); ++i) {
      float& value = values[c * rows() + i];
      value = -gamma_ * std::max(0.0F, squares_[first + c] + squares_[i] - 2.0F * value);
    }
  block.exp_();
  for (std::size_t c = 0; c < count; ++c) columns_[first + c] = block[static_cast<std::int64_t>(c)];
}

const float* KernelColumns::column(std::size_t i) {
  if (!columns_[i].defined()) {
    if (kept_.size() >= room_) {
      columns_[kept_.front()].reset();
      kept_.pop_front();
    }
    compute(i, 1);
    kept_.push_back(i);
  }
  return columns_[i].const_data_ptr<float>();
}

}  // namespace screen
