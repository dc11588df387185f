#include "core/rundir/learned.hpp"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

#include "core/rundir/run_directory.hpp"
#include "core/runfile/value_json.hpp"

namespace trainyard::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* file_name = "data.json";

Value value_from(const Json& json) {
  if (json.is_object()) {
    Table table;
    for (const auto& [key, value] : json.items()) table.set(key, value_from(value));
    return table;
  }
  if (json.is_array()) {
    Array all;
    for (const Json& each : json) all.push_back(value_from(each));
    return all;
  }
  if (json.is_string()) return json.get<std::string>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_boolean()) return json.get<bool>();
  throw DataError("it holds a null");
}

Learned read(const fs::path& path) {
  const auto damaged = [&](const std::string& why) {
    return DataError(
        path.string() + ": " + why +
        ": what the run's dataset learned from its training split cannot be read; copy the file from "
        "where the run was trained, or remove it to learn from the training split again");
  };
  std::ifstream file(path, std::ios::binary);
  if (!file) throw damaged("it cannot be opened");
  const Json json = Json::parse(file, nullptr, false);
  if (!json.is_object() || !json.contains("type") || !json["type"].is_string() || !json.contains("learned") ||
      !json["learned"].is_object())
    throw damaged("it is damaged");
  try {
    return {json["type"].get<std::string>(), value_from(json["learned"]).as<Table>()};
  } catch (const DataError& error) {
    throw damaged(error.what());
  }
}

}  // namespace

std::string text_of(const Learned& learned) {
  const Json json = {{"type", learned.type}, {"learned", config::json_of(learned.values)}};
  try {
    return json.dump(1) + "\n";
  } catch (const Json::exception&) {
    throw DataError("the dataset " + learned.type +
                    " learned a text that is no UTF-8, which cannot be kept in the run: convert its files");
  }
}

void write_learned(const std::string& folder, const Learned& learned) {
  write_atomically(folder + "/" + file_name, text_of(learned));
}

std::optional<Learned> learned_beside(const std::string& given) {
  const fs::path path = fs::absolute(given).lexically_normal();
  constexpr int most = 3;  // RUN/checkpoints/step-8
  fs::path folder = path.has_filename() ? path : path.parent_path();
  for (int i = 0; i < most && !folder.empty(); ++i, folder = folder.parent_path()) {
    std::error_code error;
    if (RunDirectory::holds_run(folder.string()))
      return fs::exists(folder / file_name, error) ? std::optional(read(folder / file_name)) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace trainyard::report
