// The network as C++ source that needs no library: for small devices.
#pragma once

#include <string>
#include <vector>

#include <trainyard/graph/graph.hpp>
#include <trainyard/named_tensor.hpp>

/// Writes a folder with network.hpp, network.cpp, weights.bin (32-bit floats), the operators (runtime.hpp), programs
/// (predict.cpp and, where the network is a chain of linear layers, fit.cpp) and a Makefile. `tensors` hold the weights
/// by name; `source` is named in a comment. A file stands once it is whole.
///
/// Throws ConfigError, which names the node, for what the operators there do not do, and where the folder holds other
/// things; DataError where it cannot be written.
void write_static(const std::string& folder, const trainyard::Graph& graph,
                  const std::vector<trainyard::NamedTensor>& tensors, const std::string& source);
