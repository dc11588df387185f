// A convolution of a plan and the three products that it is made of, each by oneDNN (direct.cpp) or with fewer
// products of numbers (winograd.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "compiler.hpp"
#include "window.hpp"

namespace compiled {

struct ConvolutionLayer {
  Window window;
  Layout x, y;                ///< with channels filled up; x plain where it is a picture
  Dims weight;                ///< of the parameter
  std::int64_t channels = 0;  ///< of x, filled up
  bool is_picture = false;
  bool relu = false;

  std::int64_t whole_outputs() const { return y.get_dims()[1]; }
};

/// The values of the plan that a convolution reads and makes.
struct ConvolutionValues {
  ValueNumber x, weight;
  std::optional<ValueNumber> bias;
  ValueNumber y;
};

/// One of the three; made at the time of its instruction.
class ConvolutionPart {
 public:
  virtual ~ConvolutionPart() = default;
  virtual void run() = 0;
};
using ConvolutionPartPtr = std::unique_ptr<ConvolutionPart>;

/// Whether oneDNN has something fast for all that is needed.
bool has_direct(const ConvolutionLayer& layer, bool needs_x);
ConvolutionPartPtr direct_forward(Compiler& compiler, const ConvolutionLayer& layer,
                                  const ConvolutionValues& values);
/// `given`: the gradient of y, behind its ReLU.
ConvolutionPartPtr direct_data(Compiler& compiler, const ConvolutionLayer& layer,
                               const ConvolutionValues& values, const dnnl::memory& given);
/// Of weight and bias.
ConvolutionPartPtr direct_weights(Compiler& compiler, const ConvolutionLayer& layer,
                                  const ConvolutionValues& values, const dnnl::memory& given);

/// Whether fewer products count as faster; nothing where they are not possible.
std::optional<bool> counts_for_winograd(const ConvolutionLayer& layer, Direction direction);
/// The same as above with fewer products.
ConvolutionPartPtr winograd_forward(Compiler& compiler, const ConvolutionLayer& layer,
                                    const ConvolutionValues& values);
ConvolutionPartPtr winograd_data(Compiler& compiler, const ConvolutionLayer& layer,
                                 const ConvolutionValues& values, const dnnl::memory& given);
ConvolutionPartPtr winograd_weights(Compiler& compiler, const ConvolutionLayer& layer,
                                    const ConvolutionValues& values, const dnnl::memory& given);

}  // namespace compiled
