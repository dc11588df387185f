// A safetensors file as checkpoints have it: with what is needed to check it later, and written by one process or by
// all ranks of a run, of tables that lie in parts on them each its own rows.
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
      rows;  ///< of all ranks, `own` being those of rows_of_rank(); nothing: all have all
};

struct WrittenTensor {
  std::string dtype;  ///< as the format writes it: "F32"
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0, length = 0;  ///< of its bytes in the file
  std::vector<std::pair<std::uint64_t, std::string>> parts =
      {};                   ///< bytes that each rank has written, their SHA-256
  std::string digest = {};  ///< SHA-256, where there are no parts
};

struct WrittenFile {
  std::uint64_t size = 0, header = 0;  ///< bytes of all, and of what stands before the tensors
  std::string header_digest;           ///< SHA-256
  std::vector<WrittenTensor> tensors;
};

/// Writes whole tensors, as write_safetensors does, with which no rank has to have more than its own rows. `path` is
/// the same file for all ranks, and on the disk when this returns; rank 0 gets what is in it. With `ranks` a
/// collective that waits. Throws DataError, also where the ranks have different tensors.
WrittenFile write_together(const std::string& path, const std::vector<SharedTensor>& tensors,
                           RankGroup* ranks, const std::map<std::string, std::string>& metadata = {});

}  // namespace trainyard
