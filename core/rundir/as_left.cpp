#include "core/rundir/as_left.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include <trainyard/error.hpp>

#include "core/rundir/folder.hpp"
#include "core/rundir/run_directory.hpp"
#include "core/runfile/changes.hpp"
#include "core/runfile/live_config.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/rank_place.hpp"

namespace trainyard::control {
namespace {

namespace fs = std::filesystem;

/// What lies beside weights, or in their checkpoint; nothing where no run with swaps wrote them.
std::optional<SwappedFile> beside(const fs::path& weights) {
  const std::string folder = (fs::is_directory(weights) ? weights : weights.parent_path()).string();
  if (std::ifstream live(folder + "/" + live_name); live && weights.filename() == checkpoint::weights_name)
    return SwappedFile{resolved_table(folder, report::RunDirectory::read_config(folder)),
                       resolved_table(folder, {std::istreambuf_iterator<char>(live), {}}), folder};
  if (!fs::exists(folder + "/" + checkpoint::manifest_name)) return std::nullopt;
  const std::vector<checkpoint::StateEntry> states = checkpoint::read_manifest(folder).states;
  const auto run = std::ranges::find(states, "run", &checkpoint::StateEntry::owner);
  if (run == states.end()) return std::nullopt;
  const auto table = [&](const char* name) {
    return resolved_table(folder, std::get<std::string>(run->scalars.at(name)));
  };
  return SwappedFile{table("file"), table("config"), folder};
}

}  // namespace

Table resolved_table(const std::string& source, const std::string& text) {
  config::Document document = config::load_resolved(source, text);
  if (document.findings.failed()) throw ConfigError(document.findings.text());
  return std::move(document.root);
}

config::RunConfig as_left(const SwappedFile& file, const config::RunConfig& config,
                          const plugins::Registry& registry, bool trains) {
  Table begun = file.given;
  begun.erase("swap");
  if (config::diff(file.live, begun).empty()) return config;
  config::Document document;
  document.root = config::with_changes(file.live, config::diff(file.given, config.resolved), config.resolved);
  document.root.erase("swap");
  document.file = file.source;
  document.ranks = static_cast<int>(config::ranks_of(config.resolved));  // perhaps not as many as saved it
  document.trains = trains;
  config::Resolution resolution = config::live_config(std::move(document), registry);
  if (!resolution.config)
    throw ConfigError("the run as its swaps have left it cannot go on with this host:\n" +
                      resolution.findings.text());
  resolution.config->swaps = config.swaps;
  return std::move(*resolution.config);
}

config::RunConfig as_left(const std::string& path, const config::RunConfig& config,
                          const plugins::Registry& registry) {
  const fs::path home = fs::weakly_canonical(config.run.output_dir);
  const fs::path within = fs::weakly_canonical(path).lexically_relative(home);
  if (!fs::exists(path) || within.empty() || *within.begin() == "..") return config;
  const std::optional<SwappedFile> file = beside(path);
  return file ? as_left(*file, config, registry, false) : config;
}

}  // namespace trainyard::control
