// Interfaces between a network that uses few rows of a large parameter in a pass and an optimizer that leaves
// the other rows alone for a while: Adam moves a row on without a gradient, too, and a row that was left
// behind has to be brought up to date before it is read.
//
// A pass says which rows it reads (ReadsRows). All others see the weights whole: the host has the optimizer
// catch up ahead of hooks at after_step, of evaluations, checkpoints and swaps, and at the end of a training
// (LeavesRows). Hooks that look at weights at other events may find rows behind.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("mixins/reads_rows.hpp");

namespace trainyard {

/// A network implements it; found by dynamic_cast. Loop thread.
class ReadsRows {
 public:
  virtual ~ReadsRows() = default;

  /// Called in a training pass before it reads rows of a parameter, which are named as often as they are
  /// used. What it writes to the parameter counts for the pass. It is not called for parameters that are read
  /// whole.
  using Listener = std::function<void(const at::Tensor& parameter, std::span<const std::int64_t> rows)>;

  /// Sets the listener, of which there is one, or none.
  virtual void on_read(Listener listener) = 0;
};

/// An optimizer implements it; found by dynamic_cast. Loop thread.
class LeavesRows {
 public:
  virtual ~LeavesRows() = default;

  /// Brings every row to the last update. The bits of the training do not depend on when, or how often, it is
  /// called; it costs little where nothing is behind.
  virtual void catch_up() = 0;
};

}  // namespace trainyard
