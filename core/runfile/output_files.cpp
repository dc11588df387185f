#include "core/runfile/output_files.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include "lib/words.hpp"

namespace trainyard::config {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> own_names = {
    "checkpoints",     "config.toml", "ctl.sock",    "data.json", "journal.jsonl", "model.safetensors",
    "quarantine.json", "report.json", "result.json", "run.log",   "swapped.toml",  "trial"};

/// Returns whether a path within the run's folder is, or lies in, one that the host or the recorder writes.
bool is_own(const fs::path& path) {
  std::string first = path.begin()->string();
  if (first.ends_with(".tmp")) first.resize(first.size() - 4);
  return std::ranges::find(own_names, first) != own_names.end() || first.starts_with("events.out.tfevents.");
}

/// Returns where a path leads, also one that does not exist yet.
fs::path target_of(fs::path path) {
  constexpr int most_links = 40;
  std::error_code error;
  for (int i = 0; i < most_links && fs::is_symlink(path, error); ++i)
    path = path.parent_path() / fs::read_symlink(path, error);
  return fs::weakly_canonical(path, error);
}

/// Returns what is wrong with the name of a file to write; empty if nothing is.
std::string wrong_with(const std::string& written, const std::string& folder) {
  const fs::path name = fs::path(written).lexically_normal();
  if (name.is_absolute() || name.begin() == name.end() || *name.begin() == ".." || *name.begin() == ".")
    return "does not lie in the run's folder";
  if (is_own(name)) return "is a file of the run itself";
  if (std::next(name.begin()) != name.end()) return "lies in a folder that the run does not make";
  std::error_code error;
  const fs::path within = fs::weakly_canonical(folder, error);
  const fs::path there = target_of(within / name).lexically_relative(within);
  if (!there.empty() && is_own(there)) return "leads to " + there.string() + ", a file of the run itself";
  return {};
}

}  // namespace

void check_output_files(const RunConfig& config, const std::string& folder, const plugins::Registry& registry,
                        Findings& findings) {
  std::map<std::string, std::string> writers;
  for (const SlotConfig& slot : config.slots) {
    const std::vector<const plugins::PluginFile*> plugin = registry.find(slot.kind, slot.type);
    if (plugin.size() != 1) continue;
    for (const OptionSpec& spec : plugin.front()->manifest.options) {
      const Value* value = spec.output ? slot.options.find(spec.name) : nullptr;
      const auto* written = value == nullptr ? nullptr : value->get_if<std::string>();
      if (written == nullptr) continue;
      const std::string key = slot.slot + "." + spec.name;
      std::string wrong = wrong_with(*written, folder);
      const auto [other, first] = writers.emplace(fs::path(*written).lexically_normal().string(), key);
      if (wrong.empty() && !first) wrong = "is the file of " + other->second + ", too";
      if (!wrong.empty())
        findings.error("E403", value->origin.line > 0 ? value->origin : slot.origin,
                       key + ": \"" + *written + "\" " + wrong,
                       "give it a plain name of its own; these are the run's: " + lib::join(own_names));
    }
  }
}

}  // namespace trainyard::config
