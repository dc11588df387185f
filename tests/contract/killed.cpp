// Every shipped plugin in a run that is killed again and again: it ends with the bits of one that was left
// alone.
#include <signal.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "contract/host_run.hpp"
#include "contract/process.hpp"
#include "contract/records.hpp"
#include "support/folder.hpp"
#include "support/run.hpp"

namespace killed_tests {

using namespace trainyard;
using namespace trainyard::contract;
using plugins::PluginFile;

namespace {

struct Place {
  const char* name;
  const char* event;
  int step;
};
/// With three steps an epoch, the last not full, of two micro-batches each, an evaluation after each epoch
/// and a checkpoint every two steps.
constexpr Place places[] = {{"before the first checkpoint", "batch_end", 1},
                            {"inside an evaluation", "eval_batch_end", 3},
                            {"while a checkpoint is written", "before_checkpoint", 4},
                            {"between two checkpoints, ahead of an update", "before_step", 8},
                            // Last: where another thread writes it, that may be at the end of the run.
                            {"right after a checkpoint", "after_checkpoint", 4}};
const std::vector<std::string> sets = {"run.resume=auto",          "trainer.max_duration=3ep",
                                       "checkpoint.interval=2ba",  "logging.interval=1ba",
                                       "data.train.batch_size=10", "data.train.micro_batch_size=5"};

/// The plugin's run, watched by every sink, and by the hook that kills.
std::string watched(const PluginFile& plugin, const std::string& place_file) {
  std::string text = host_run(plugin).text();
  if (const std::size_t none = text.find("sinks = []\n"); none != std::string::npos) text.erase(none, 11);
  if (const std::size_t none = text.find("save = false\n"); none != std::string::npos) text.erase(none, 13);
  if (plugin.manifest.kind != "checkpointer") text += "[checkpoint]\ntype = \"full\"\n";
  for (const PluginFile& file : alone())
    if (file.manifest.kind == "sink" && file.path != plugin.path)
      text += "[[logging.sinks]]\ntype = \"" + file.manifest.name + "\"\n" + host_run(file).options;
  return text + "[[hooks]]\ntype = \"killer\"\nplace = \"" + place_file + "\"\n";
}

/// Begins the run of a plugin, or goes on with it; it is killed at the place, or ends.
bool killed_at(const Place& place, const Apart& run) {
  run.folder().write("place", std::string(place.event) + " " + std::to_string(place.step));
  const int status = run.train(sets);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

Remains ends(const Apart& run) {
  std::filesystem::remove(run.folder().path("place"));
  const int status = run.train(sets);
  INFO(run.said());
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  Remains remains = remains_of(run.run());
  std::filesystem::remove_all(run.run());
  return remains;
}

}  // namespace

TEST_CASE("every plugin is killed in every place, and its run ends with the same bits and records") {
  std::set<std::string> survived;
  const std::vector<PluginFile> tried = drawn(alone());
  for (const PluginFile& plugin : tried) {
    INFO(title(plugin));
    Apart run;
    run.write(watched(plugin, run.folder().path("place")));
    const Remains expected = ends(run);
    CHECK(expected.at("digest").front().size() > 64);
    for (const Place& place : places) {
      INFO("killed " << place.name);
      const bool killed = killed_at(place, run);
      INFO(run.said());
      CHECK(killed);
    }
    const std::string differs = difference(ends(run), expected);
    CHECK_THAT(differs, Catch::Equals(""));
    if (differs.empty()) survived.insert(plugin.path);
  }
  CHECK(survived.size() == tried.size());
}

}  // namespace killed_tests
