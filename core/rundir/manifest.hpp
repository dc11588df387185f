// The manifest of a checkpoint: manifest.json beside its safetensors files. A folder without an intact
// manifest does not count as a checkpoint. Torch-free.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace trainyard::checkpoint {

using Scalar = std::variant<bool, std::int64_t, double, std::string>;

/// Returns the name of a tensor in its file: "OWNER:NAME", or the bare name for those of the model, so that
/// other programs find them.
std::string stored_name(std::string_view owner, std::string_view name);
/// Returns the name under which a code stands in its file, as bytes: nobody takes it for the tensor.
std::string code_name(std::string_view owner, std::string_view name, std::string_view codec);

/// The bytes of a tensor that one rank wrote, which follow those of the rank before.
struct PartEntry {
  std::uint64_t length = 0;
  std::string digest;  ///< SHA-256
};

struct TensorEntry {
  std::string owner, name;
  std::string dtype;  ///< as safetensors writes it: "F32"
  std::vector<std::int64_t> shape;
  std::string file;
  std::uint64_t offset = 0, length = 0;  ///< bytes in the file
  std::string digest;                    ///< SHA-256 of them; in parts: of the parts' digests
  std::vector<PartEntry> parts = {};     ///< by rank; empty: one process wrote it all
  std::string codec = {};  ///< of which the bytes in the file are a code; empty: they are the tensor
  std::uint64_t size = 0;  ///< with a codec: bytes of the tensor, whose digest `digest` is
};
/// Returns the digest of a tensor in parts, computed from the digests of the parts.
std::string digest_of(const std::vector<PartEntry>& parts);

struct FileEntry {
  std::string name;
  std::uint64_t size = 0;
  std::uint64_t header = 0;   ///< bytes before the first tensor
  std::string header_digest;  ///< SHA-256 of them
};

struct StateEntry {
  std::string owner, version;
  std::map<std::string, Scalar, std::less<>> scalars;
};

struct Manifest {
  std::int64_t step = 0;
  std::string written;  ///< ISO 8601, UTC
  std::map<std::string, double, std::less<>> metrics;
  std::vector<StateEntry> states;
  std::vector<FileEntry> files;
  std::vector<TensorEntry> tensors;
};

inline constexpr const char* manifest_name = "manifest.json";

/// Returns JSON that carries a digest of itself, so that a change of any bit is found.
std::string to_text(const Manifest& manifest);
/// Reads a manifest. Throws DataError that names `path` and what is wrong with it. The result accounts for
/// every byte of every file, names only files beside the manifest, and has a state for every tensor.
Manifest from_text(std::string_view text, const std::string& path);

}  // namespace trainyard::checkpoint
