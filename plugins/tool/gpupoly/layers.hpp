// A network as the verifier sees it: steps over flat vectors, each bounded by linear forms of the steps that
// it reads. Made of a Graph, of which every operator is one of few steps; one that is none is refused.
//
// Of a value [channels, height, width] the elements lie as [height][width][channels], so that a window of
// pixels is few stretches of memory; of other values they lie as in the graph.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <trainyard/graph/graph.hpp>

namespace gpupoly {

enum class Step : std::uint8_t {
  input,
  dense,     ///< weights x + bias
  conv,      ///< the same of each window of the image
  scale,     ///< weights * x + bias, element by element
  relu,      ///< max(x, 0)
  max_pool,  ///< the largest of each window, channel by channel
  norm,      ///< of each group of elements, less their mean, over the root of their variance
  sum,       ///< of two
  select,    ///< element i is element from[i] of x, or 0 where that is -1
};

struct Map {
  std::int64_t height = 1, width = 1, channels = 1;
  std::int64_t size() const { return height * width * channels; }
  bool operator==(const Map&) const = default;
};

/// Of a convolution or pool: output pixel (y, x) reads rows y stride_y - pad_y to that + height, every step_y-th of them.
struct Window {
  std::int64_t height = 1, width = 1, stride_y = 1, stride_x = 1, pad_y = 0, pad_x = 0;
  std::int64_t step_y = 1, step_x = 1;  ///< of a pool with dilation; a convolution has weights of 0 instead
  bool operator==(const Window&) const = default;

  /// f(element of `parent`, element of the window) of the first channel of each pixel that output pixel (y, x) reads.
  template <class F>
  void each_tap(const Map& parent, std::int64_t y, std::int64_t x, const F& f) const {
    for (std::int64_t ky = 0; ky < height; ky += step_y)
      for (std::int64_t kx = 0; kx < width; kx += step_x) {
        const std::int64_t py = y * stride_y - pad_y + ky, px = x * stride_x - pad_x + kx;
        if (py < 0 || py >= parent.height || px < 0 || px >= parent.width) continue;
        f((py * parent.width + px) * parent.channels, (ky * width + kx) * parent.channels);
      }
  }
};

struct Layer {
  Step step = Step::input;
  std::string name;  ///< of the node
  trainyard::ValueId value =
      trainyard::no_value;  ///< of the graph that it is; none: a part on the way to one
  std::vector<std::size_t> parents;
  Map map;
  Window window;                ///< of conv and max_pool
  std::vector<double> weights;  ///< dense: [out][in]; conv: [out channel][y][x][in channel]; scale: [element]
  std::vector<double> bias;     ///< one an element, of select what it fills in; empty: none
  std::vector<double> constants;   ///< sizes of what the program adds to an element, whose rounding counts
  std::vector<std::int64_t> from;  ///< of select
  std::int64_t group = 0;          ///< of norm: how many elements behind each other
  double epsilon = 0.0;            ///< of norm: what is added to the variance

  /// An element of the program is its exact value, from the inputs that the program has, but for
  /// gamma(roundings) times the sum of the sizes of all products and constants, whatever the order of its
  /// sums (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1).
  std::int64_t roundings = 0;
  /// As `roundings`, in double precision: of weights that are themselves computed here.
  std::int64_t inexact = 0;
};

/// In the order of computation; the first is the input, the last the output.
struct Layers {
  std::vector<Layer> all;
  std::vector<std::int64_t> input_shape;  ///< of one sample
  const Layer& input() const { return all.front(); }
  const Layer& output() const { return all.back(); }
};

/// Where element i of the verifier's order is in the graph's, for a value of this shape (one sample).
std::vector<std::int64_t> order(const std::vector<std::int64_t>& shape);

/// Of a graph with one input and one output that is a vector, shapes inferred; weights are read once, and
/// dropout is left out. Throws ConfigError that names the first node that is no such step.
Layers layers_of(const trainyard::Graph& graph);

}  // namespace gpupoly
