#include "core/engine/save/summary.hpp"

#include <cstdio>
#include <filesystem>

#include "core/rundir/folder.hpp"
#include "lib/on_path.hpp"
#include "lib/printed.hpp"

namespace trainyard::report {
namespace {

std::string number(double value) {
  return lib::printed("%.4g", value);
}

const char* ending(const RunResult& result) {
  switch (result.status) {
    case Status::completed: return "done";
    case Status::stopped: return "stopped early (journal.jsonl says why)";
    case Status::interrupted: return "interrupted at a step boundary";
    case Status::failed: return "failed";
  }
  return "";
}

/// Returns what to type for this program: its name if the shell finds it by that, else its path from here.
std::string program() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const auto found = lib::on_path("trainyard");
  if (found && fs::equivalent(*found, self, error)) return "trainyard";
  const std::string path = fs::proximate(self, error).string();
  return error || path.empty() ? "trainyard" : path.find('/') == std::string::npos ? "./" + path : path;
}

}  // namespace

std::string summary(const config::RunConfig& config, const RunResult& result, const std::string& directory) {
  const std::string command = program();
  std::string text = "\n" + config.run.name + ": " + ending(result) + ", " + std::to_string(result.steps) +
                     " steps in " + number(result.seconds) + " s (" +
                     number(result.seconds > 0 ? static_cast<double>(result.samples) / result.seconds : 0) +
                     " samples/s)\n";
  for (const auto& [name, value] : result.metrics)
    if (name.starts_with("val/") || name.starts_with("test/"))
      text += "  " + name + "  " + number(value) + "\n";
  if (result.weights_step != result.steps)
    text += "  these are of the best weights, those of step " + std::to_string(result.weights_step) +
            ", which the run ends with\n";
  else if (const auto best = checkpoint::best(directory); best && checkpoint::step_of(*best) != result.steps)
    text += "  these are of the last weights; of the best, those of step " +
            std::to_string(*checkpoint::step_of(*best)) + ":  " + command + " eval " + directory +
            "/config.toml --weights best\n";
  if (result.swaps.refused + result.swaps.rolled_back > 0)
    text += "  swaps          " + std::to_string(result.swaps.made) + " made, " +
            std::to_string(result.swaps.refused) + " refused, " + std::to_string(result.swaps.rolled_back) +
            " taken back (journal.jsonl says why)\n";
  text += "  run directory  " + directory +
          "  (config.toml, metrics.jsonl, result.json, model.safetensors)\n\nTry next:\n";
  if (result.status == Status::interrupted)
    text += "  go on:             " + command + " resume " + directory + "\n";
  text += "  change one thing:  " + command + " train " + directory + "/config.toml --set optimizer.lr=" +
          number(2 * config.at("optimizer").options.find("lr")->as<double>()) +
          " --set run.name=" + config.run.name + "-lr\n";
  text += "  see the model:     " + command + " model show " + directory + "/config.toml\n";
  text += "  see the curves:    tensorboard --logdir " + directory + "\n";
  return text;
}

}  // namespace trainyard::report
