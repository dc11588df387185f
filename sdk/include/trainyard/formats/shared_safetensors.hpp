// Writes a safetensors file of a checkpoint, with what is needed to check it later. One process writes it, or
// all ranks of a run do: each its own rows of the tables that lie in parts on them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/ranks.hpp>

namespace trainyard {

struct SharedTensor {
  std::string name;
  at::Tensor own;
  std::optional<std::int64_t>
      rows;  ///< rows of all ranks, where `own` is those of rows_of_rank(); nothing: each has all
};

struct WrittenTensor {
  std::string dtype;  ///< as the format writes it: "F32"
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0, length = 0;  ///< place and size of its bytes in the file
  std::vector<std::pair<std::uint64_t, std::string>> parts =
      {};                   ///< bytes that each rank has written, and their SHA-256
  std::string digest = {};  ///< SHA-256 of all bytes, where there are no parts
};

struct WrittenFile {
  std::uint64_t size = 0, header = 0;  ///< bytes of the file, and of its part before the tensors
  std::string header_digest;           ///< SHA-256 of that part
  std::vector<WrittenTensor> tensors;
};

/// Writes whole tensors, as write_safetensors does, though no rank has to have more than its own rows. `path`
/// is the same file for all ranks, and on the disk when this returns; rank 0 gets the description. With
/// `ranks` this is a collective that waits. Throws DataError, also where the ranks have different tensors.
WrittenFile write_together(const std::string& path, const std::vector<SharedTensor>& tensors,
                           RankGroup* ranks, const std::map<std::string, std::string>& metadata = {});

}  // namespace trainyard
