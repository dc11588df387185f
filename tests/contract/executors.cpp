#include "contract/executors.hpp"

#include <algorithm>
#include <map>

#include <trainyard/executor.hpp>

#include "support/run.hpp"

namespace trainyard::contract {
namespace {

/// Modes that take more than a word, after the options of run files in the READMEs.
const std::map<std::string, Mode> more_modes = {
    {"hfta",
     {.executor = "hfta",
      .name = "two members",
      .options = "members = [{ set = [] }, { set = [\"run.seed=11\"] }]\n"}},
    // Without a delay, and with updates of whole batches: what `eager` does.
    {"pipelined",
     {.executor = "pipelined",
      .name = "one stage",
      .options = "mode = \"sim\"\nstages = 1\nupdate_size = 8\nmitigation = \"none\"\n",
      .whole = true}},
};
const std::vector<std::string> late = {"pipelined sim",  "pipelined threads", "pipelined dist",
                                       "wavelet stale1", "wavelet replica",   "wavelet rolling"};
const std::vector<std::string> pausing = {"wavelet stale1", "wavelet replica", "wavelet rolling"};

std::vector<Mode> modes_of(const ManifestData& executor) {
  const auto choice = std::ranges::find_if(executor.options,
                                           [](const OptionSpec& option) { return !option.choices.empty(); });
  std::vector<Mode> all;
  if (choice == executor.options.end())
    all.push_back({.executor = executor.name, .name = "plain", .options = ""});
  else
    for (const std::string& word : choice->choices)
      all.push_back(
          {.executor = executor.name, .name = word, .options = choice->name + " = \"" + word + "\"\n"});
  if (const auto more = more_modes.find(executor.name); more != more_modes.end()) all.push_back(more->second);
  for (Mode& mode : all) {
    mode.fires_all = executor.fires.size() == std::size(micro_events);
    mode.own_statistics = mode.executor == "wavelet";
    mode.late = std::ranges::count(late, mode.executor + " " + mode.name) > 0;
    mode.pauses = std::ranges::count(pausing, mode.executor + " " + mode.name) > 0;
  }
  return all;
}

}  // namespace

std::string without_executor(std::string text) {
  const std::size_t at = text.find("[executor]\n");
  if (at != std::string::npos) text.erase(at, std::min(text.find("\n[", at), text.size() - 1) + 1 - at);
  return text;
}

const std::vector<Mode>& modes() {
  static const std::vector<Mode> found = [] {
    std::vector<Mode> all;
    for (const plugins::PluginFile& file : test::shipped().files()) {
      if (file.manifest.kind != Executor::kind.name) continue;
      const std::vector<Mode> own = modes_of(file.manifest);
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }();
  return found;
}

}  // namespace trainyard::contract
