// Copies weights into a model from elsewhere.
#pragma once

#include <string>
#include <vector>

#include <trainyard/named_tensor.hpp>

namespace trainyard::train {

/// Copies tensors to those of the same names. `patterns` (* and ? allowed) choose among the model's tensors;
/// none: all of them, and then `from` may hold nothing else either. Throws ConfigError, with nothing changed,
/// that names the tensor that is missing, left over or of another shape or type; `source` says where they
/// come from.
void copy_weights(const std::vector<NamedTensor>& to, const std::vector<NamedTensor>& from,
                  const std::string& source, const std::vector<std::string>& patterns = {});

}  // namespace trainyard::train
