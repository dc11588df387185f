#include "times.hpp"

#include <c10/core/ScalarType.h>

#include <cmath>
#include <numeric>

namespace partitioned {

using namespace trainyard;
namespace {

// A core of a server: what calling an operator costs, and what it does in a microsecond.
constexpr double call = 3.0, operations = 4e4, bytes_moved = 8e3;
/// Threads share out what is longer, and lose some of it.
constexpr double shared_from = 15.0, scaling = 0.85;

double of_threads(double work, int threads) {
  return threads == 1 || work < shared_from ? work : work / std::pow(threads, scaling);
}

}  // namespace

double Times::total() const {
  return std::accumulate(forward.begin(), forward.end(), 0.0) +
         std::accumulate(backward.begin(), backward.end(), 0.0) + loss;
}

double bytes_of(const GraphValue& value, std::int64_t samples) {
  double elements = static_cast<double>(c10::elementSize(value.dtype));
  for (const std::int64_t size : value.shape)
    elements *= static_cast<double>(size < 0 ? -size * samples : size);
  return elements;
}

Times estimated(const Graph& graph, std::int64_t samples, int threads) {
  Times times;
  for (const Node& node : graph.nodes) {
    double bytes = 0.0;
    for (const auto* ids : {&node.inputs, &node.outputs})
      for (const ValueId id : *ids)
        if (id != no_value) bytes += bytes_of(graph.values[static_cast<std::size_t>(id)], samples);
    const double products = static_cast<double>(cost(graph, node).multiply_adds * samples);
    const double work = 2.0 * products / operations + bytes / bytes_moved;
    times.forward.push_back(call + of_threads(work, threads));
    // As many products by the inputs as by the weights.
    times.backward.push_back(2.0 * call + 2.0 * of_threads(work, threads));
  }
  times.loss = 10.0 * call;
  return times;
}

}  // namespace partitioned
