// Products on a CUDA device.
#pragma once

#include <memory>

#include "kernels/interval_conv.hpp"
#include "products.hpp"

namespace gpupoly {

/// The forms `rows` through `layer` to those of `out`, as kernels have it.
trainyard::kernels::IntervalConv geometry(const Rows& rows, const Layer& layer, const Rows& out);

/// On the current CUDA device, in double precision, in another order of sums than on the processor: bounds hold
/// alike, and differ in their last digits. Throws ConfigError where there is no such device.
std::unique_ptr<Products> cuda_products();

}  // namespace gpupoly
