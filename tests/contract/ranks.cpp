// Every shipped plugin where two ranks train: both come to the same weights (the host compares them at the end),
// and a run whose ranks are killed goes on to the same bits.
#include <signal.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include <trainyard/executor.hpp>

#include "contract/host_run.hpp"
#include "contract/process.hpp"
#include "contract/records.hpp"
#include "support/files.hpp"
#include "support/run.hpp"

namespace ranks_tests {

using namespace trainyard;
using namespace trainyard::contract;
using plugins::PluginFile;
using test::shipped;

namespace {

/// Three steps an epoch, the last one such that the second rank has no sample in it.
const std::vector<std::string> sets = {"run.resume=auto",         "trainer.max_duration=9ba",
                                       "checkpoint.interval=2ba", "logging.interval=1ba",
                                       "data.train.batch_size=8", "data.train.micro_batch_size=2"};

std::string killable(const PluginFile& plugin, const std::string& place_file) {
  std::string text = host_run(plugin).text();
  if (plugin.manifest.kind != "checkpointer") text += "[checkpoint]\ntype = \"full\"\n";
  return text + "[[hooks]]\ntype = \"killer\"\nplace = \"" + place_file + "\"\n";
}

std::string digest_of(const Apart& run) {
  const int status = run.train(sets, 2);
  INFO(run.said());
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  const Outcome outcome = outcome_of(run.run());
  CHECK(outcome.model == outcome_of(run.run() + "/ranks/1").model);
  std::filesystem::remove_all(run.run());
  return outcome.model + outcome.optimizer;
}

/// Whether the plugin says ahead of the first step that it trains on one rank.
bool trains_alone(const Apart& run) {
  const int status = run.train(sets, 2);
  const bool alone = WIFEXITED(status) && WEXITSTATUS(status) == 2 &&
                     run.said().find("trains on one rank") != std::string::npos;
  std::filesystem::remove_all(run.run());
  return alone;
}

}  // namespace

TEST_CASE("every plugin trains on two ranks, and goes on to the same bits once both were killed") {
  for (const PluginFile& plugin : drawn(with_table())) {
    INFO(title(plugin));
    Apart run;
    run.write(killable(plugin, run.folder().path("place")));
    const bool may_be_alone = plugin.manifest.kind == "executor" || plugin.manifest.kind == "model";
    if (may_be_alone && trains_alone(run)) continue;
    const std::string expected = digest_of(run);
    CHECK(expected.size() == 128);
    run.folder().write("place", "before_step 6");
    const int status = run.train(sets, 2);
    INFO(run.said());
    CHECK(WIFSIGNALED(status));
    std::filesystem::remove(run.folder().path("place"));
    CHECK(digest_of(run) == expected);
  }
}

}  // namespace ranks_tests
