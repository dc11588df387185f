// The networks of an audit: the parent, the pruned ones, and one that was trained by itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/graph/graph.hpp>
#include <trainyard/network.hpp>

namespace audit {

struct Judged {
  std::string name;
  std::unique_ptr<trainyard::Network> owned;  ///< null: somebody else's
  trainyard::Network* network = nullptr;
  std::int64_t parameters = 0;  ///< that are not 0; those of normalisations and biases count, too
  double ratio = 0.0;           ///< share of the parent's parameters that it does without

  /// Returns logits [samples, classes], on the CPU, for inputs on the CPU.
  at::Tensor logits(const at::Tensor& inputs, at::Device device) const;
};

/// Counts the parameters that are not 0.
std::int64_t parameters_left(const trainyard::Network& network);

/// Returns the file with the weights of a run, of a checkpoint's folder or of a file: those that a run ended with, else
/// those of its newest checkpoint. Throws DataError where there are none.
std::string weights_file(const std::string& path);

/// Makes the network of a graph with the weights of a file in place of its own. Shapes may be others, as where filters were
/// taken out; names may not. Throws ConfigError or DataError that names the file.
std::unique_ptr<trainyard::Network> with_weights(const trainyard::Graph& graph, const std::string& path);

}  // namespace audit
