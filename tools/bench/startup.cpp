// What a start costs: whole processes, begun in turn; milliseconds, minima and 20th percentiles of many runs.
#include <cstring>
#include <string>

#include "core/cli/engine_library.hpp"
#include "core/plugins/registry.hpp"
#include "tools/bench/contest.hpp"
#include "tools/bench/process.hpp"

namespace trainyard::bench {
namespace {

void measure(int rounds) {
  const std::string host = cli::home() + "/bin/trainyard", empty = cli::home() + "/bin/bench_empty";
  const std::string digits = TRAINYARD_SOURCE_DIR "/configs/digits_mlp.toml";
  const Folder folder;
  const std::string output = folder.path() + "/run";
  const std::size_t shipped = plugins::Registry::scan({TRAINYARD_PLUGIN_DIR}).files().size();
  const auto first_step = [&](const std::string& file, std::vector<std::string> further) {
    std::vector<std::string> words = {host,
                                      "train",
                                      file,
                                      "--overwrite",
                                      "--quiet",
                                      "--plugins",
                                      TRAINYARD_BENCH_PLUGINS,
                                      "--set",
                                      "run.output_dir=" + output,
                                      "--set",
                                      "hooks=[{ type = \"end_at_first_step\" }]"};
    words.insert(words.end(), further.begin(), further.end());
    return [words] { run(words); };
  };
  const std::vector<Contender> contenders = {
      {"an empty LibTorch program",
       [&] {
         run({empty, "-"});
       }},
      {"train, one MLP, to the first step (bar +150)",
       first_step(TRAINYARD_SOURCE_DIR "/tools/bench/loop.toml", {})},
      {"train configs/digits_mlp.toml, to the first step", first_step(digits, {})},
      {"validate --level files configs/digits_mlp.toml (bar 60)",
       [&] {
         run({host, "validate", "--level", "files", digits});
       }},
      {"plugins list of " + std::to_string(shipped) + " (bar 20)",
       [&] {
         run({host, "plugins", "list"});
       }},
      {"--version",
       [&] {
         run({host, "--version"});
       }},
  };
  const std::vector<Times> times = contest(contenders, rounds, children_seconds);
  print("Starts", "ms", 1e-3, 1, contenders, times);
  const auto over = [&](std::size_t i, double share) {
    return 1e3 * (percentile(times[i].wall, share) - percentile(times[0].wall, share));
  };
  std::printf("  first step over the empty program: %.1f ms (min), %.1f ms (p20); digits %.1f, %.1f\n",
              over(1, 0.0), over(1, 0.2), over(2, 0.0), over(2, 0.2));
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  try {
    trainyard::bench::measure(argc > 1 && std::strcmp(argv[1], "--quick") == 0 ? 2 : 40);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_startup: %s\n", error.what());
    return 1;
  }
}
