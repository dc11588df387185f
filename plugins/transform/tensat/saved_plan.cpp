#include "saved_plan.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

#include "lib/fnv1a.hpp"
#include "lib/machine.hpp"
#include "lib/new_file.hpp"
#include "lib/read_file.hpp"
#include "network_rules.hpp"

namespace tensat {

using nlohmann::json;
using trainyard::DataError;

namespace {

constexpr int format = 1;

std::string machine() {
  static const std::string name = trainyard::lib::processor() + ", LibTorch " TRAINYARD_LIBTORCH_VERSION;
  return name;
}

json json_of(const PlanKey& key) {
  return {{"graph", key.graph}, {"rules", key.rules},     {"machine", key.machine}, {"threads", key.threads},
          {"way", key.way},     {"samples", key.samples}, {"search", key.search}};
}

}  // namespace

std::string PlanKey::hash() const {
  return trainyard::lib::Fnv1a().update(json_of(*this).dump()).hex();
}

PlanKey key_of(const trainyard::Graph& graph, const Way& way, const Search& search) {
  const json limits = {search.k_multi,
                       search.max_iterations,
                       search.max_nodes,
                       search.seconds,
                       static_cast<int>(search.cycles),
                       static_cast<int>(search.extractor),
                       search.ilp_seconds,
                       search.min_gain};
  return {.graph = hash_of(graph),
          .rules = rules_hash(),
          .machine = machine(),
          .threads = at::get_num_threads(),
          .way = way.text(),
          .samples = way.samples,
          .search = limits.dump()};
}

std::string text_of(const SavedPlan& plan) {
  const Found& f = plan.found;
  json terms = json::array();
  for (const Term& each : f.program.terms) terms.push_back({each.op, each.children, each.node, each.value});
  const json made = {{"format", format},
                     {"key", json_of(plan.key)},
                     {"taken", f.taken},
                     {"reason", f.reason},
                     {"chosen", f.hash},
                     {"report",
                      {{"nodes", f.nodes},
                       {"classes", f.classes},
                       {"opaque", f.opaque},
                       {"groups", f.groups},
                       {"rules", f.rules},
                       {"priced", f.priced},
                       {"iterations", f.iterations},
                       {"stop", f.stop},
                       {"from", f.from},
                       {"solver", f.solver},
                       {"gap", f.gap},
                       {"explored", f.explored},
                       {"extracted", f.extracted},
                       {"measuring", f.measuring},
                       {"predicted_before", f.predicted_before},
                       {"predicted_after", f.predicted_after},
                       {"greedy", f.greedy},
                       {"before", f.before},
                       {"after", f.after},
                       {"log2_programs", f.log2_programs},
                       {"merged", f.merged}}},
                     {"terms", terms},
                     {"outputs", f.program.outputs}};
  return made.dump(1) + "\n";
}

SavedPlan read_plan(const std::string& text, const std::string& name) {
  try {
    const json given = json::parse(text);
    if (given.at("format").get<int>() != format)
      throw DataError(name + ": is a plan of format " + given.at("format").dump() + ", this version reads " +
                      std::to_string(format));
    SavedPlan plan;
    const json& key = given.at("key");
    plan.key = {key.at("graph"), key.at("rules"),   key.at("machine"), key.at("threads"),
                key.at("way"),   key.at("samples"), key.at("search")};
    Found& f = plan.found;
    f.taken = given.at("taken");
    f.reason = given.at("reason");
    f.hash = given.at("chosen");
    const json& r = given.at("report");
    f.nodes = r.at("nodes");
    f.classes = r.at("classes");
    f.opaque = r.at("opaque");
    f.groups = r.at("groups");
    f.rules = r.at("rules");
    f.priced = r.at("priced");
    f.iterations = r.at("iterations");
    f.stop = r.at("stop");
    f.from = r.at("from");
    f.solver = r.at("solver");
    f.gap = r.at("gap");
    f.explored = r.at("explored");
    f.extracted = r.at("extracted");
    f.measuring = r.at("measuring");
    f.predicted_before = r.at("predicted_before");
    f.predicted_after = r.at("predicted_after");
    f.greedy = r.at("greedy");
    f.before = r.at("before");
    f.after = r.at("after");
    f.log2_programs = r.at("log2_programs");
    f.merged = r.at("merged").get<std::vector<std::string>>();
    for (const json& each : given.at("terms"))
      f.program.terms.push_back(
          {each.at(0), each.at(1).get<std::vector<std::int32_t>>(), each.at(2), each.at(3)});
    f.program.outputs = given.at("outputs").get<std::vector<std::int32_t>>();
    return plan;
  } catch (const json::exception& error) {
    throw DataError(name + ": is no plan of tensat: " + error.what());
  }
}

std::string shared_folder() {
  return trainyard::lib::cache_folder("tensat");
}

void write_file(const std::string& path, const std::string& text) {
  trainyard::lib::NewFile made(path);
  std::ofstream file(made.temporary(), std::ios::binary);
  file << text;
  file.close();
  if (!file || made.put_in_place()) throw DataError(path + ": cannot be written");
}

Shared::Shared(const std::string& folder) : folder_(folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string path = folder + "/lock";
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0 || ::flock(lock_, LOCK_EX) != 0)
    throw DataError(folder + ": cannot be written, so that nothing could be kept for the next run");
}

Shared::~Shared() {
  if (lock_ >= 0) ::close(lock_);
}

std::optional<SavedPlan> Shared::find(const PlanKey& key) const {
  const std::string path = folder_ + "/" + key.hash() + ".json";
  const auto text = trainyard::lib::read_file(path);
  if (!text) return std::nullopt;
  SavedPlan plan = read_plan(*text, path);
  if (plan.key != key) return std::nullopt;
  return plan;
}

void Shared::keep(const SavedPlan& plan) const {
  write_file(folder_ + "/" + plan.key.hash() + ".json", text_of(plan));
}

namespace {

std::string price_file(const std::string& folder, std::int64_t threads) {
  const std::string which = machine() + ", " + std::to_string(threads) + " threads";
  return folder + "/prices-" + trainyard::lib::Fnv1a().update(which).hex() + ".json";
}

}  // namespace

PriceTable Shared::prices(std::int64_t threads) const {
  const auto text = trainyard::lib::read_file(price_file(folder_, threads));
  if (!text) return {};
  const json given = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (given.is_discarded() || given.value("format", 0) != format || !given.contains("seconds")) return {};
  return given["seconds"].get<PriceTable>();
}

void Shared::keep(const PriceTable& prices, std::int64_t threads) const {
  const json made = {{"format", format}, {"machine", machine()}, {"threads", threads}, {"seconds", prices}};
  write_file(price_file(folder_, threads), made.dump(1) + "\n");
}

}  // namespace tensat
