// A parameter of the channels, filled up with zeros to whole blocks.
#pragma once

#include <cstring>

#include "compiler.hpp"
#include "loops.hpp"

namespace compiled {

inline Layout row(std::int64_t length) {
  return {{length}, f32, dnnl::memory::format_tag::x};
}

class FilledRow {
 public:
  FilledRow() = default;
  FilledRow(Compiler& compiler, ValueNumber parameter, std::int64_t whole)
      : parameter_(compiler.memory(parameter)), length_(compiler.value(parameter).dims[0]), whole_(whole) {
    if (whole != length_) filled_ = compiler.scratch(row(whole));
  }
  const dnnl::memory& memory() const { return whole_ == length_ ? parameter_ : filled_; }
  /// To be called ahead of who reads it.
  void fill() const {
    if (whole_ == length_) return;
    std::memset(filled_.get_data_handle(), 0, static_cast<std::size_t>(whole_) * sizeof(float));
    copy(floats(filled_), floats(parameter_), length_);
  }

 private:
  dnnl::memory parameter_, filled_;
  std::int64_t length_ = 0, whole_ = 0;
};

/// The gradient of such a parameter, which comes in whole blocks.
class FilledGradient {
 public:
  FilledGradient() = default;
  FilledGradient(Compiler& compiler, ValueNumber parameter, std::int64_t whole)
      : filled_(compiler.scratch(row(whole))), length_(compiler.value(parameter).dims[0]) {
    if (compiler.wants_gradient(parameter)) into_ = compiler.contribute(parameter);
  }
  const dnnl::memory& memory() const { return filled_; }
  /// Hands it on, where it is wanted.
  void give() const {
    if (!into_) return;
    copy(floats(into_->memory), floats(filled_), length_);
    into_->finish();
  }

 private:
  dnnl::memory filled_;
  std::int64_t length_ = 0;
  std::optional<Contribution> into_;
};

}  // namespace compiled
