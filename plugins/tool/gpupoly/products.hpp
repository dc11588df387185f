// Forms times the weights of a layer: where a verifier's time goes.
#pragma once

#include <cstdint>
#include <memory>

#include "layers.hpp"
#include "rows.hpp"

namespace gpupoly {

/// Not for several threads.
class Products {
 public:
  virtual ~Products() = default;

  /// `out`, over the parent of `layer`, += `rows`, which stand over `layer`: a dense one, where both have whole maps for
  /// windows, or a convolution, where that of `out` holds all that the rows depend on. `upward`: each operation
  /// rounds up, else to nearest. Gives the multiply-adds that were done.
  virtual std::int64_t add(const Rows& rows, const Layer& layer, bool upward, Rows& out) = 0;
};

/// By vector instructions, on all cores.
std::unique_ptr<Products> processor_products();

}  // namespace gpupoly
