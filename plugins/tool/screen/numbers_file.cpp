#include "numbers_file.hpp"

#include <cstring>

#include <ATen/ops/empty.h>

#include <nlohmann/json.hpp>

#include <trainyard/formats/safetensors.hpp>

#include "lib/fnv1a.hpp"

namespace screen {
namespace {

using Json = nlohmann::json;
using trainyard::NamedTensor;

constexpr const char* text_name = "pool";

template <class Number>
at::Tensor tensor_of(const Number* values, std::size_t count, at::ScalarType type) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(count)}, type);
  if (count > 0) std::memcpy(tensor.mutable_data_ptr(), values, count * sizeof(Number));
  return tensor;
}

/// Returns a digest of the names and numbers.
std::string digest_of(const Archive::Numbers& numbers) {
  trainyard::lib::Fnv1a hash;
  for (const auto& [name, values] : numbers)
    hash.update(name).update({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)});
  return hash.hex();
}

}  // namespace

bool NumbersFile::is_whole(const Json& parsed) const {
  return parsed.at("digest").get<std::string>() == digest_of(numbers);
}

void write_numbers(const std::string& path, Json text, const Archive::Numbers& numbers) {
  text["digest"] = digest_of(numbers);
  const std::string dumped = text.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::vector<NamedTensor> tensors = {{text_name, tensor_of(dumped.data(), dumped.size(), at::kByte)}};
  for (const auto& [name, values] : numbers)
    tensors.push_back({"n." + name, tensor_of(values.data(), values.size(), at::kDouble)});
  trainyard::write_safetensors(path, tensors);
}

NumbersFile read_numbers(const std::string& path) {
  NumbersFile file;
  for (const NamedTensor& each : trainyard::read_safetensors(path)) {
    const at::Tensor tensor = each.tensor.contiguous();
    if (each.name == text_name && tensor.scalar_type() == at::kByte)
      file.text.assign(static_cast<const char*>(tensor.const_data_ptr()),
                       static_cast<std::size_t>(tensor.numel()));
    else if (each.name.starts_with("n.") && tensor.scalar_type() == at::kDouble)
      file.numbers[each.name.substr(2)].assign(tensor.const_data_ptr<double>(),
                                               tensor.const_data_ptr<double>() + tensor.numel());
  }
  return file;
}

}  // namespace screen
