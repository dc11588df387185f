// Every shipped tool by itself, over a small run that has trained: it reports, and leaves what the run has
// saved as it was.
#include <filesystem>
#include <map>

#include <catch2/catch.hpp>

#include "contract/host_run.hpp"
#include "core/engine/verbs/commands.hpp"
#include "support/folder.hpp"
#include "support/run.hpp"

namespace tools_tests {

using namespace trainyard;
using namespace trainyard::contract;
using test::shipped;

namespace {

/// Those of the run, but what a tool keeps in the folder that is its own.
std::map<std::string, std::string> files_of(const std::string& run) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run)) {
    const std::string path = entry.path().string();
    if (entry.is_regular_file() && !path.starts_with(run + "/tools/")) files[path] = test::read_file(path);
  }
  return files;
}

/// Trains, then runs the tool; gives why it refuses this run, or nothing.
std::string refusal_of(const HostRun& tool) {
  const test::TempFolder runs;
  config::RunConfig config = test::valid(tool.text());
  config.run.output_dir = runs.path("run");
  train::TrainOptions options;
  options.quiet = true;
  options.resolved_toml = config::toml_file(config.resolved);
  REQUIRE(train::train_command(config, shipped(), options) == 0);
  const auto before = files_of(config.run.output_dir);
  REQUIRE(before.contains(config.run.output_dir + "/model.safetensors"));
  try {
    const int code = train::tool_command(config, shipped(), "", true);
    CHECK(code == static_cast<int>(ExitCode::done));
  } catch (const Error& error) {
    return error.what();
  }
  CHECK((files_of(config.run.output_dir) == before));
  return {};
}

}  // namespace

TEST_CASE("every tool reports on a run that has trained, and leaves its files as they were") {
  for (const std::string& name : shipped().names("tool")) {
    const HostRun& first = host_run(*shipped().find("tool", name).front());
    INFO(title(first.plugin));
    std::string reasons;
    bool ran = false;
    for (const Surroundings& host : check::surroundings()) {
      const std::string reason = refusal_of({&host, first.plugin, first.options});
      if ((ran = reason.empty())) break;
      reasons += host.name + ": " + reason + "\n";
    }
    INFO(reasons);
    CHECK(ran);
  }
}

}  // namespace tools_tests
