// A matrix product whose operands are named in each call.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "instruction.hpp"

namespace compiled {

/// c = a b, with a row added to each of it, or added to what c holds. Each thread has its own.
class CalledProduct {
 public:
  CalledProduct() = default;
  CalledProduct(const Layout& a, const Layout& b, const Layout& c, bool adds = false,
                const Layout& row = {}) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    dnnl::post_ops then;
    if (adds) then.append_sum();
    attributes.set_post_ops(then);
    const dnnl::matmul::primitive_desc made(engine(), a, b, row, c, attributes);
    operands_ = {dnnl::memory(a, engine(), nullptr), dnnl::memory(made.weights_desc(), engine(), nullptr),
                 dnnl::memory(c, engine(), nullptr)};
    std::vector<std::pair<int, dnnl::memory>> arguments = {
        {DNNL_ARG_SRC, operands_[0]},
        {DNNL_ARG_WEIGHTS, operands_[1]},
        {DNNL_ARG_DST, operands_[2]},
        {DNNL_ARG_SCRATCHPAD, dnnl::memory(made.scratchpad_desc(), engine())}};
    if (row.get_size() > 0) {
      row_ = dnnl::memory(row, engine(), nullptr);
      arguments.emplace_back(DNNL_ARG_BIAS, row_);
    }
    call_ = {dnnl::matmul(made), std::move(arguments)};
  }
  explicit operator bool() const { return static_cast<bool>(call_); }
  /// The layout in which it takes b, where that was left open.
  Layout factor() const { return operands_[1].get_desc(); }

  void operator()(const void* a, const void* b, void* c, const void* row = nullptr) {
    operands_[0].set_data_handle(const_cast<void*>(a));
    operands_[1].set_data_handle(const_cast<void*>(b));
    operands_[2].set_data_handle(c);
    if (row_) row_.set_data_handle(const_cast<void*>(row));
    call_.run();
  }

 private:
  std::array<dnnl::memory, 3> operands_;
  dnnl::memory row_;
  Call call_;
};

}  // namespace compiled
