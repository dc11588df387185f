// The safetensors file format: an 8-byte little-endian header length, a JSON header of {name: {dtype, shape,
// data_offsets}}, then the bytes of the tensors, row-major and without gaps.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <trainyard/helpers/rows_wanted.hpp>
#include <trainyard/named_tensor.hpp>

namespace trainyard {

/// Returns the name of an element type in the format, as "F32"; empty for one that it lacks.
std::string safetensors_dtype(at::ScalarType type);
/// Returns the element type of that name. Throws DataError, which names the file and begins with `who`.
at::ScalarType safetensors_type(const std::string& path, const std::string& who, std::string_view dtype);

/// Returns the part of a file before the bytes of the tensors: length and JSON, padded such that tensors
/// begin at a multiple of 8. Throws DataError, which names `path`, for a dtype that the format lacks or a
/// name given twice.
std::string safetensors_header(const std::string& path, const std::vector<NamedTensor>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

/// Writes the tensors (copied to the CPU if need be) to a temporary file beside `path`, and renames it once
/// it is on the disk. Throws DataError with path and reason.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// Returns all tensors, on the CPU, in the order of their bytes; of each it reads only the rows that are
/// wanted. Throws DataError for a file that is not exactly of this format: header too long or malformed, a
/// tensor out of bounds, overlapping, with a gap before it, or twice.
std::vector<NamedTensor> read_safetensors(const std::string& path, const RowsWanted& wanted = all_rows);

}  // namespace trainyard
