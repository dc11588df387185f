// What makes of the inputs of a batch something that its network does not take, or of its targets another number.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <trainyard/batch.hpp>

inline const std::vector<std::string> misfeeds = {
    "doubles", "integers", "fewer columns", "more columns", "second input", "rows twice", "fewer targets"};

inline void misfeed(trainyard::Batch& batch, std::string_view with) {
  at::Tensor& x = batch.inputs.front();
  if (with == "doubles") x = x.to(at::kDouble);
  if (with == "integers") x = x.to(at::kLong);
  if (with == "fewer columns") x = x.narrow(1, 0, x.size(1) / 2).contiguous();
  if (with == "more columns") x = x.repeat({1, 16});
  if (with == "second input") batch.inputs.push_back(at::Tensor(batch.inputs.front()));
  if (with == "rows twice") x = at::cat({x, x});
  if (with == "fewer targets") batch.target = batch.target.narrow(0, 0, batch.target.size(0) / 2);
}
