#include "pool_file.hpp"

#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>
#include <trainyard/formats/safetensors.hpp>

#include "lib/fnv1a.hpp"

namespace screen {
namespace {

using Json = nlohmann::json;
using trainyard::DataError;
using trainyard::NamedTensor;

constexpr const char* text_name = "pool";
constexpr int version = 1;

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

SavedPool pool_of(const Json& text, Archive& archive) {
  SavedPool saved;
  PoolOptions options;
  options.detectors = text.at("detectors").get<std::vector<std::string>>();
  saved.pool = Pool(options);
  saved.columns = text.at("columns").get<std::vector<std::string>>();
  saved.contamination = text.at("contamination").get<double>();
  saved.combination = static_cast<Combination>(text.at("combination").get<std::uint8_t>());
  saved.pool.keep(archive);
  return saved;
}

}  // namespace

void save_pool(const std::string& path, SavedPool& saved) {
  Archive archive;
  saved.pool.keep(archive);
  Json text = {{"version", version},
               {"columns", saved.columns},
               {"contamination", saved.contamination},
               {"combination", static_cast<int>(saved.combination)},
               {"digest", digest_of(archive.numbers())},
               {"detectors", Json::array()}};
  for (const Pool::Member& member : saved.pool.members()) text["detectors"].push_back(member.spec.text());
  const std::string dumped = text.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::vector<NamedTensor> tensors = {{text_name, tensor_of(dumped.data(), dumped.size(), at::kByte)}};
  for (const auto& [name, values] : archive.numbers())
    tensors.push_back({"n." + name, tensor_of(values.data(), values.size(), at::kDouble)});
  trainyard::write_safetensors(path, tensors);
}

SavedPool load_pool(const std::string& path) {
  Archive::Numbers numbers;
  std::string dumped;
  for (const NamedTensor& each : trainyard::read_safetensors(path)) {
    const at::Tensor tensor = each.tensor.contiguous();
    if (each.name == text_name && tensor.scalar_type() == at::kByte)
      dumped.assign(static_cast<const char*>(tensor.const_data_ptr()),
                    static_cast<std::size_t>(tensor.numel()));
    else if (each.name.starts_with("n.") && tensor.scalar_type() == at::kDouble)
      numbers[each.name.substr(2)].assign(tensor.const_data_ptr<double>(),
                                          tensor.const_data_ptr<double>() + tensor.numel());
  }
  if (dumped.empty())
    throw DataError(path + ": it is no pool: expected a file that trainyard screen wrote with --save");
  try {
    const Json text = Json::parse(dumped);
    if (const int found = text.at("version").get<int>(); found != version)
      throw DataError(path + ": it is a pool of version " + std::to_string(found) +
                      ", and this program reads version " + std::to_string(version) + ": fit the pool again");
    if (text.at("digest").get<std::string>() != digest_of(numbers))
      throw DataError(
          path + ": its numbers are not those that were written: the file is damaged; fit the pool again");
    Archive archive(std::move(numbers), path);
    return pool_of(text, archive);
  } catch (const Json::exception& error) {
    throw DataError(path + ": it is no pool that this program can read (" + error.what() +
                    "): fit the pool again");
  }
}

}  // namespace screen
