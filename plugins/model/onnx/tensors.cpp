// Tensors of an ONNX file in memory of their own.
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <trainyard/error.hpp>
#include <trainyard/helpers/shape_text.hpp>

#include "model_file.hpp"

namespace onnx {
namespace {

using namespace trainyard;

constexpr const char* type_names[] = {
    "undefined",      "float",      "uint8",          "int8",       "uint16",   "int16",
    "int32",          "int64",      "string",         "bool",       "float16",  "double",
    "uint32",         "uint64",     "complex64",      "complex128", "bfloat16", "float8e4m3fn",
    "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4",      "int4",     "float4e2m1"};

std::string type_name(std::int64_t type) {
  if (type >= 0 && static_cast<std::size_t>(type) < std::size(type_names))
    return type_names[static_cast<std::size_t>(type)];
  return "type " + std::to_string(type);
}

/// How elements lie in the file, and as what they are taken.
struct ElementType {
  std::int64_t type;
  at::ScalarType stored, taken;
};
constexpr ElementType element_types[] = {
    {1, at::kFloat, at::kFloat}, {2, at::kByte, at::kLong},      {3, at::kChar, at::kLong},
    {5, at::kShort, at::kLong},  {6, at::kInt, at::kInt},        {7, at::kLong, at::kLong},
    {9, at::kByte, at::kBool},   {11, at::kDouble, at::kDouble},
};

const ElementType& element_type(const TensorData& data) {
  for (const ElementType& type : element_types)
    if (type.type == data.type) return type;
  throw DataError(
      "tensor \"" + data.name + "\" holds " + type_name(data.type) +
      ", which is not read: one of float, double, int8 to int64, uint8, bool. Convert the model to float");
}

[[noreturn]] void misfit(const TensorData& data, std::uint64_t found, const std::string& unit) {
  throw DataError("tensor \"" + data.name + "\" of shape " + shape_text(data.dims) + " of " +
                  type_name(data.type) + " has " + std::to_string(found) + " " + unit);
}

std::uint64_t number(const TensorData& data, const std::string& key, std::uint64_t fallback) {
  const auto found = data.external->find(key);
  if (found == data.external->end()) return fallback;
  std::uint64_t result = 0;
  const char *begin = found->second.data(), *end = begin + found->second.size();
  const auto [stopped, error] = std::from_chars(begin, end, result);
  if (error != std::errc() || stopped != end)
    throw DataError("tensor \"" + data.name + "\": external data has " + key + " = \"" + found->second +
                    "\", needs a number of bytes");
  return result;
}

/// Where external data lies: a file beside the model, and bytes of it. One outside of its folder is no part of it.
struct FileRange {
  std::string path;
  std::uint64_t offset;
};

FileRange external_range(const TensorData& data, const std::string& model, std::uint64_t size) {
  const auto location = data.external->find("location");
  const std::filesystem::path name = location == data.external->end() ? "" : location->second;
  bool inside = !name.empty() && name.is_relative();
  for (const auto& part : name) inside = inside && part != "..";
  if (!inside)
    throw DataError("tensor \"" + data.name + "\": external data lies in \"" + name.string() +
                    "\", needs a file in the folder of the model");
  FileRange place{(std::filesystem::path(model).parent_path() / name).string(), number(data, "offset", 0)};
  if (const std::uint64_t length = number(data, "length", size); length != size)
    misfit(data, length, "bytes of external data");
  std::error_code error;
  const std::uint64_t there = std::filesystem::file_size(place.path, error);
  if (error || there < place.offset || there - place.offset < size)
    throw DataError("tensor \"" + data.name + "\": " + place.path +
                    (error ? " cannot be read: " + error.message()
                           : " has not " + std::to_string(size) + " bytes from byte " +
                                 std::to_string(place.offset) + " on"));
  return place;
}

at::Tensor stored(const TensorData& data, const ModelFile& model) {
  const ElementType& type = element_type(data);
  const std::int64_t count = elements(data.dims, data.name);
  const auto bytes = static_cast<std::uint64_t>(count) * at::elementSize(type.stored);
  const auto as_list = [&](const auto& list) {
    if (static_cast<std::int64_t>(list.size()) != count) misfit(data, list.size(), "numbers");
    return at::tensor(list, type.stored).reshape(data.dims);
  };
  if (!data.external && data.raw.empty()) {
    if (type.stored == at::kFloat) return as_list(data.floats);
    return type.stored == at::kDouble ? as_list(data.doubles) : as_list(data.integers);
  }
  // What is not there is not asked memory for.
  std::optional<FileRange> place;
  if (data.external) place = external_range(data, model.path, bytes);
  if (!place && data.raw.size() != bytes) misfit(data, data.raw.size(), "bytes");
  at::Tensor tensor = at::empty(data.dims, type.stored);
  if (!place) {
    std::memcpy(tensor.mutable_data_ptr(), data.raw.data(), bytes);
    return tensor;
  }
  std::ifstream in(place->path, std::ios::binary);
  if (!in.seekg(static_cast<std::streamoff>(place->offset)) ||
      !in.read(static_cast<char*>(tensor.mutable_data_ptr()), static_cast<std::streamsize>(bytes)))
    throw DataError("tensor \"" + data.name + "\": " + place->path + " cannot be read");
  return tensor;
}

}  // namespace

std::int64_t elements(const std::vector<std::int64_t>& dims, const std::string& name) {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims)
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count) || count > (std::int64_t{1} << 40))
      throw DataError("tensor \"" + name + "\" has shape [" + [&] {
        std::string text;
        for (const std::int64_t each : dims) text += (text.empty() ? "" : ", ") + std::to_string(each);
        return text;
      }() + "], needs dimensions of 0 or more whose product memory can hold");
  return count;
}

at::Tensor to_tensor(const TensorData& data, const ModelFile& model) {
  return stored(data, model).to(element_type(data).taken);
}

at::Tensor to_tensor(const SparseData& data, const ModelFile& model) {
  const std::string& name = data.values.name;
  const auto fail = [&](const std::string& what) -> void {
    throw DataError("sparse tensor \"" + name + "\" " + what);
  };
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (elements(data.dims, name) > most)
    fail("of shape " + shape_text(data.dims) + " has more than " + std::to_string(most) +
         " elements, and would be stored with its zeros");
  const at::Tensor values = to_tensor(data.values, model), indices = to_tensor(data.indices, model);
  const auto rank = static_cast<std::int64_t>(data.dims.size());
  const bool linear = indices.dim() == 1;
  if (values.dim() != 1 || indices.scalar_type() != at::kLong || (!linear && indices.dim() != 2) ||
      indices.size(0) != values.size(0) || (!linear && indices.size(1) != rank))
    fail("has values of shape " + shape_text(values.sizes().vec()) + " at indices of shape " +
         shape_text(indices.sizes().vec()) + ", needs [count] and [count] or [count, " +
         std::to_string(rank) + "]");
  at::Tensor dense = at::zeros(data.dims, values.options());
  const at::Tensor flat = dense.view({-1});
  const auto* const at = indices.const_data_ptr<std::int64_t>();
  at::Tensor places = at::empty({values.size(0)}, at::kLong);
  auto* const place = places.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < values.size(0); ++i) {
    place[i] = linear ? at[i] : 0;
    for (std::int64_t d = 0; d < rank && !linear; ++d) {
      const std::int64_t index = at[i * rank + d], length = data.dims[static_cast<std::size_t>(d)];
      if (index < 0 || index >= length)
        fail("has an index " + std::to_string(index) + " in dimension " + std::to_string(d) + " of " +
             std::to_string(length));
      place[i] = place[i] * length + index;
    }
    if (place[i] < 0 || place[i] >= dense.numel())
      fail("has an index " + std::to_string(place[i]) + " among " + std::to_string(dense.numel()) +
           " elements");
  }
  flat.index_put_({places}, values);
  return dense;
}

}  // namespace onnx
