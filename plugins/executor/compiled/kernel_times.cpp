#include "kernel_times.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <dnnl.hpp>
#include <nlohmann/json.hpp>

#include "lib/descriptor.hpp"
#include "lib/fnv1a.hpp"
#include "lib/machine.hpp"
#include "lib/new_file.hpp"
#include "lib/read_file.hpp"

namespace compiled {

using nlohmann::json;
using trainyard::Graph;
using trainyard::Node;

namespace {

constexpr int kernel_format = 1;
constexpr std::string_view way_words[ways] = {"winograd", "direct", "halves"};

json json_of(const KernelTable& table) {
  json made = json::object();
  for (const auto& [key, times] : table) {
    json& entry = made[key] = json::object();
    if (times.is_rough) entry["rough"] = true;
    for (std::size_t way = 0; way < ways; ++way) {
      json row = json::array();
      bool any = false;
      for (const double each : times.seconds[way]) {
        any = any || std::isfinite(each);
        row.push_back(std::isfinite(each) ? json(each) : json());
      }
      if (any) entry[std::string(way_words[way])] = row;
    }
  }
  return made;
}

/// Nothing, or json::exception, for one that is none.
std::optional<KernelTable> table_of(const json& given) {
  KernelTable table;
  for (const auto& [key, entry] : given.get_ref<const json::object_t&>()) {
    KernelTimes times;
    times.is_rough = entry.value("rough", false);
    for (std::size_t way = 0; way < ways; ++way) {
      const auto row = entry.find(way_words[way]);
      if (row == entry.end()) continue;
      for (std::size_t direction = 0; direction < directions; ++direction)
        if (const json& each = row->at(direction); !each.is_null()) {
          times.seconds[way][direction] = each.get<double>();
          if (times.seconds[way][direction] < 0.0) return std::nullopt;
        }
    }
    table.emplace(key, times);
  }
  return table;
}

}  // namespace

bool takes_winograd(const KernelTimes& times, Direction direction, bool counted) {
  const double fewer = times.of(Way::winograd, direction), all = times.of(Way::direct, direction);
  if (fewer < (1.0 - times.margin()) * all) return true;
  if (all < (1.0 - times.margin()) * fewer) return false;
  return counted;
}

std::string shape_key(const Graph& graph, const Node& node) {
  std::string key = node.op;
  for (const trainyard::ValueId id : node.inputs)
    key += " " + (id == trainyard::no_value
                      ? std::string("-")
                      : trainyard::shape_text(graph.values[static_cast<std::size_t>(id)].shape));
  for (const auto& [name, attribute] : node.attributes) {
    if (const auto* const number = std::get_if<std::int64_t>(&attribute))
      key += " " + name + " " + std::to_string(*number);
    if (const auto* const numbers = std::get_if<std::vector<std::int64_t>>(&attribute))
      key += " " + name + " " + trainyard::shape_text(*numbers);
  }
  return key;
}

std::string text_of(const KernelTable& table) {
  return json_of(table).dump();
}

std::optional<KernelTable> read_table(const std::string& text) {
  try {
    return table_of(json::parse(text));
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

KernelFile::KernelFile(int threads) : folder_(trainyard::lib::cache_folder("compiled")) {
  const dnnl_version_t* const version = dnnl_version();
  // Instructions may be held back: ONEDNN_MAX_CPU_ISA.
  machine_ = trainyard::lib::processor() + ", oneDNN " + std::to_string(version->major) + "." +
             std::to_string(version->minor) + "." + std::to_string(version->patch) + ", instructions " +
             std::to_string(static_cast<unsigned>(dnnl::get_effective_cpu_isa())) + ", " +
             std::to_string(threads) + " threads";
  path_ = folder_ + "/" + trainyard::lib::Fnv1a().update(machine_).hex() + ".json";
}

std::optional<KernelTable> KernelFile::read() const {
  const auto text = trainyard::lib::read_file(path_);
  if (!text) return std::nullopt;
  try {
    const json given = json::parse(*text);
    if (given.at("format") != kernel_format || given.at("machine") != machine_) return std::nullopt;
    return table_of(given.at("seconds"));
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::optional<KernelTable> KernelFile::keep(const KernelTable& table) const {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  const trainyard::lib::Descriptor lock(
      ::open((folder_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!lock || ::flock(lock.get(), LOCK_EX) != 0) return std::nullopt;
  KernelTable all = read().value_or(KernelTable());
  all.insert(table.begin(), table.end());
  trainyard::lib::NewFile made(path_);
  std::ofstream file(made.temporary(), std::ios::binary);
  file << json{{"format", kernel_format}, {"machine", machine_}, {"seconds", json_of(all)}}.dump(1) << "\n";
  file.close();
  if (!file || made.put_in_place()) return std::nullopt;
  return all;
}

}  // namespace compiled
