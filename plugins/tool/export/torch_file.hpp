// A dictionary of tensors as Python's torch.save() writes it.
#pragma once

#include <string>
#include <vector>

#include <trainyard/named_tensor.hpp>

/// Tensors on the CPU, contiguous, each on storage of its own; torch.load(path, weights_only=True) gives them by name.
/// The file stands at its place only when it is whole. Throws DataError with path and reason.
void write_torch(const std::string& path, const std::vector<trainyard::NamedTensor>& tensors);
