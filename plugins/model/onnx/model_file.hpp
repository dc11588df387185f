// An ONNX file as it is: what onnx.proto (https://github.com/onnx/onnx, IR version 13) has that a network for
// training is made of. Nothing is judged here; tensors are views of the file until they are asked for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

namespace onnx {

/// TensorProto.
struct TensorData {
  std::string name;
  std::vector<std::int64_t> dims;
  std::int64_t type = 0;  ///< TensorProto.DataType
  std::string_view raw;   ///< little endian; else one of the lists
  std::vector<float> floats;
  std::vector<std::int64_t> integers;
  std::vector<double> doubles;
  std::optional<std::map<std::string, std::string>> external;  ///< location, offset, length: another file
};

/// SparseTensorProto: values at places, either linear [count] or with an index a dimension [count, rank].
struct SparseData {
  TensorData values, indices;
  std::vector<std::int64_t> dims;
};

/// Subgraphs are of control flow; what holds one is refused by its node.
struct Subgraph {};

using AttributeValue =
    std::variant<std::monostate, std::int64_t, float, std::string, TensorData, SparseData,
                 std::vector<std::int64_t>, std::vector<float>, std::vector<std::string>, Subgraph>;

/// NodeProto.
struct FileNode {
  std::string op, domain, name;
  std::vector<std::string> inputs, outputs;  ///< "": not given
  std::map<std::string, AttributeValue> attributes;
};

/// ValueInfoProto of a tensor.
struct FileValue {
  std::string name;
  std::int64_t type = 0;                                          ///< of its elements; 0: not a tensor
  std::optional<std::vector<std::optional<std::int64_t>>> shape;  ///< a dimension may have a name alone
};

struct ModelFile {
  std::string path;   ///< for messages and external data
  std::string bytes;  ///< what the views point into
  std::int64_t opset = 0;
  std::vector<FileNode> nodes;
  std::vector<TensorData> initializers;
  std::vector<SparseData> sparse_initializers;
  std::vector<FileValue> inputs, outputs;

  ModelFile() = default;
  ModelFile(const ModelFile&) = delete;  // views point into bytes
  ModelFile& operator=(const ModelFile&) = delete;
};

/// Reads the file into `model`. Throws DataError, with path and byte, where it cannot be read or is no model.
void read_model(const std::string& path, ModelFile& model);

/// A tensor of its own memory, float, double, int32, int64 or bool; narrower integers become int64. Looks external data
/// up beside the model. Throws DataError that says what does not fit: dims against data, a type that is not
/// read (float16, bfloat16, quantised and others, by name), a place outside of the model's folder.
at::Tensor to_tensor(const TensorData& data, const ModelFile& model);
/// The same, with zeros where it has no values.
at::Tensor to_tensor(const SparseData& data, const ModelFile& model);

/// A TensorProto alone, as the test data of ONNX has them. `bytes` must outlive it.
TensorData parse_tensor(std::string_view bytes);

/// Elements of a shape. Throws DataError where one of its dimensions is negative or they are more than memory holds.
std::int64_t elements(const std::vector<std::int64_t>& dims, const std::string& name);

}  // namespace onnx
