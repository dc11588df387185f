// Whole trainings of the host, of PyTorch and of Lightning: the digits that lie in the repository, an MLP
// 64-128-10, AdamW, batch 64, one thread, each a process of its own, begun in turn. The seconds are what each
// takes from the first batch to the end of the final evaluation; starting Python and reading the file are not
// in them. tools/bench/peers/whole makes the Python that this needs.
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/cli/engine_library.hpp"
#include "tools/bench/contest.hpp"
#include "tools/bench/process.hpp"

namespace trainyard::bench {
namespace {

using nlohmann::json;

struct Peer {
  std::string name;
  std::function<json()> train;  ///< seconds, steps, accuracy
};

std::string python() {
  const char* deps = std::getenv("TRAINYARD_DEPS");
  const std::string found =
      (deps != nullptr ? std::string(deps) : std::string(TRAINYARD_SOURCE_DIR "/.deps")) +
      "/peers/bin/python";
  if (!std::filesystem::exists(found))
    throw std::runtime_error("there is no " + found + ": make it with tools/bench/peers/whole");
  return found;
}

json host(const std::string& epochs, const std::string& output) {
  run({cli::home() + "/bin/trainyard", "train", TRAINYARD_SOURCE_DIR "/tools/bench/whole.toml", "--overwrite",
       "--quiet", "--set", "run.output_dir=" + output, "--set", "trainer.max_duration=" + epochs + "ep"});
  json result = json::parse(std::ifstream(output + "/result.json"));
  result["accuracy"] = result.at("metrics").at("val/accuracy");
  return result;
}

Peer script(const std::string& name, const std::string& file, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {python(), TRAINYARD_SOURCE_DIR "/tools/bench/python/" + file});
  return {name, [arguments] { return json::parse(run(arguments)); }};
}

void measure(int rounds, const std::string& epochs) {
  const Folder folder;
  const std::vector<Peer> peers = {
      {"host", [&] { return host(epochs, folder.path() + "/run"); }},
      script("PyTorch, DataLoader", "pytorch.py", {epochs}),
      script("PyTorch, DataLoader, fused AdamW", "pytorch.py", {epochs, "fused"}),
      script("Lightning", "lightning_fit.py", {epochs}),
      script("PyTorch, steps alone", "pytorch.py", {epochs, "premade"}),
      script("PyTorch, steps alone, fused AdamW", "pytorch.py", {epochs, "premade", "fused"}),
  };
  std::vector<std::vector<double>> seconds(peers.size());
  std::vector<json> last(peers.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < peers.size(); ++i) {
      last[i] = peers[i].train();
      seconds[i].push_back(last[i].at("seconds"));
      if (last[i].at("steps") != last[0].at("steps"))
        throw std::runtime_error(peers[i].name + " made another number of steps than the host");
    }
  std::printf("%-36s %9s %9s %12s %9s   %s\n", "whole training, s", "min", "median", "us a step", "accuracy",
              "times the host's, min and median");
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const double least = percentile(seconds[i], 0.0), median = percentile(seconds[i], 0.5);
    std::printf("%-36s %9.3f %9.3f %12.1f %9.4f   %7.2f %7.2f\n", peers[i].name.c_str(), least, median,
                1e6 * least / last[i].at("steps").get<double>(), last[i].at("accuracy").get<double>(),
                least / percentile(seconds[0], 0.0), median / percentile(seconds[0], 0.5));
  }
  std::printf(
      "bars: PyTorch 3, Lightning 5; steps alone 1.43 (the host, data loading included, takes 0.70)\n");
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  try {
    quick ? trainyard::bench::measure(1, "1") : trainyard::bench::measure(5, "30");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_whole: %s\n", error.what());
    return 1;
  }
}
