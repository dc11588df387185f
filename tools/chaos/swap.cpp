// Swaps that go wrong, and very many that do not: faults at every moment of a swap, after which the run has
// to be what it would have been; swaps without end while checkpoints are written and read.
//   chaos_swap [--quick | --swaps N] [--seed N]
#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/engine/save/load.hpp"
#include "core/plugins/elf.hpp"
#include "support/live.hpp"

namespace trainyard::chaos {
namespace {

namespace fs = std::filesystem;
using test::Ask;
using test::Folder;
using test::LiveRun;
using Random = std::mt19937_64;

std::int64_t draw(Random& random, std::int64_t first, std::int64_t last) {
  return std::uniform_int_distribution<std::int64_t>(first, last)(random);
}

constexpr int steps = 24, steps_of_epoch = 6;
const std::string head = R"(
schema = 1
[run]
name = "chaos"
seed = 3
threads = { intra_op = 1, inter_op = 1 }
[model]
type = "mlp"
layers = [8, 16, 3]
[loss]
type = "cross_entropy"
)";

std::string victim(const std::string& optimizer, int workers) {
  return head +
         "[data]\ntype = \"synthetic\"\nkind = \"classification\"\nshape = [8]\nclasses = 3\nworkers = " +
         std::to_string(workers) +
         "\ntrain = { size = 96, batch_size = 16, shuffle = true }\nval = { size = 32 }\n"
         "[trainer]\nmax_duration = \"24ba\"\neval_interval = \"5ba\"\n"
         "[[hooks]]\ntype = \"ema\"\ndecay = 0.9\n"
         "[optimizer]\nlr = 0.01\ntype = " +
         optimizer;
}

/// The plugin that goes wrong, in a folder where it can be harmed.
class Troubled {
 public:
  Troubled() {
    fs::copy(std::string(TRAINYARD_FAULTY) + "/optimizer", folder_ / "optimizer",
             fs::copy_options::recursive);
    file_ = folder_ / "optimizer/libtroubled.so";
    bytes_ = test::read_file(file_);
    digest_ = plugins::ElfFile(file_).digest();
    registry_ = plugins::Registry::scan({TRAINYARD_PLUGIN_DIR, folder_.path()});
  }
  const plugins::Registry& registry() const { return registry_; }

  void remove() const { fs::remove(file_); }
  void flip_a_bit(Random& random) const {
    do {  // of what is loaded, which the digest is of; a build for debuggers holds more
      std::string bytes = bytes_;
      char& byte =
          bytes[static_cast<std::size_t>(draw(random, 4096, static_cast<std::int64_t>(bytes.size()) - 1))];
      byte = static_cast<char>(byte ^ 1 << draw(random, 0, 7));
      write(bytes);
    } while (plugins::ElfFile(file_).digest() == digest_);
  }
  void mend() const { write(bytes_); }

 private:
  /// A new file, as a linker makes it: the old one may be in use.
  void write(const std::string& bytes) const {
    fs::remove(file_);
    std::ofstream(file_, std::ios::binary) << bytes;
  }

  Folder folder_;
  std::string file_, bytes_, digest_;
  plugins::Registry registry_;
};

struct Fault {
  const char* name;
  const char* at;   ///< where the plugin that comes in goes wrong; null: something else does
  bool taken_back;  ///< it was in the run already
};
constexpr Fault faults[] = {
    {"its file is missing", nullptr, false},
    {"its digest is wrong", nullptr, false},
    {"its constructor throws", "construction", false},
    {"its open throws", "open", false},
    {"its load throws", "load", false},
    {"its swap_in throws", "swap_in", false},
    {"the old one's swap_out throws", nullptr, false},
    {"it throws in a watched step", "step", true},
    {"it writes NaN in a watched step", "not_finite", true},
};

struct Tally {
  int tries = 0, told = 0, same = 0;
  std::string first;  ///< that was not as it should be
};

bool fault_in(const Fault& fault, const Troubled& plugin, Random& random, int workers,
              std::map<std::string, std::string>& expected, std::string& why) {
  const bool old_one = std::strstr(fault.name, "swap_out") != nullptr;
  const std::string text = victim(old_one ? "\"troubled\"\nat = \"swap_out\"" : "\"adamw\"", workers);
  if (!expected.contains(text)) {
    LiveRun never(text, plugin.registry());
    never.fit();
    expected[text] = never.result();
  }
  const std::int64_t own_step = draw(random, 1, 3);
  // A watch does not go beyond an epoch.
  const std::int64_t asked = draw(random, 0, steps / steps_of_epoch - 1) * steps_of_epoch +
                             draw(random, 1, steps_of_epoch - (fault.taken_back ? own_step + 1 : 0));
  Ask ask{asked, "optimizer", "troubled", {}, "fresh", "3ba"};
  ask.beside = !fault.taken_back && draw(random, 0, 1) == 1;
  if (fault.at != nullptr)
    ask.assignments = {std::string("at=") + fault.at, "step=" + std::to_string(own_step)};
  if (std::strcmp(fault.name, "its load throws") == 0) ask.carry = "state";
  if (old_one) ask.type = "adamw";
  if (std::strstr(fault.name, "missing") != nullptr) plugin.remove();
  if (std::strstr(fault.name, "digest") != nullptr) plugin.flip_a_bit(random);
  bool good = false;
  try {
    LiveRun run(text, plugin.registry(), {ask});
    run.fit();
    const bool told = run.told().size() == 1 && run.told()[0].done == fault.taken_back;
    const bool noted = !fault.taken_back || run.count("swap_rolled_back") == 1;
    const bool same = run.result() == expected[text] && run->live().swaps == 0;
    good = told && noted && same;
    if (!good)
      why = std::string(told ? "" : "told: " + (run.told().empty() ? "nothing" : run.told()[0].text) + "; ") +
            (noted ? "" : "not taken back; ") + (same ? "" : "other bits; ") + "asked at step " +
            std::to_string(asked);
  } catch (const std::exception& error) {
    why = std::string("the run ended: ") + error.what() + "; asked at step " + std::to_string(asked);
  }
  plugin.mend();
  return good;
}

bool inject(int tries, Random& random) {
  const Troubled plugin;
  std::map<std::string, std::string> expected;
  bool all = true;
  std::printf("Faults in a swap: the run goes on to the bits of one that was never asked\n");
  for (const Fault& fault : faults) {
    int good = 0;
    std::string first;
    for (int i = 0; i < tries; ++i) {
      std::string why;
      good += fault_in(fault, plugin, random, i % 2 * 2, expected, why);
      if (first.empty()) first = why;
    }
    all = all && good == tries;
    std::printf("  %-34s %3d/%d%s%s\n", fault.name, good, tries, first.empty() ? "" : "   ", first.c_str());
    std::fflush(stdout);
  }
  return all;
}

/// Every step once and in order, and in every whole epoch each sample once.
bool check_witness(const std::string& file, std::int64_t steps_done, std::int64_t samples) {
  std::ifstream lines(file);
  std::int64_t expected = 0, epochs = 0;
  std::vector<std::int64_t> seen;
  bool good = true;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::int64_t step = 0, index = 0;
    words >> step;
    good = good && step == ++expected;
    while (words >> index) seen.push_back(index);
    if (static_cast<std::int64_t>(seen.size()) < samples) continue;
    std::sort(seen.begin(), seen.end());
    for (std::int64_t i = 0; i < samples; ++i) good = good && seen[static_cast<std::size_t>(i)] == i;
    good = good && static_cast<std::int64_t>(seen.size()) == samples;
    seen.clear();
    ++epochs;
  }
  std::printf("  steps run %lld, seen %lld; %lld whole epochs, each an exact permutation: %s\n",
              static_cast<long long>(steps_done), static_cast<long long>(expected),
              static_cast<long long>(epochs), good ? "yes" : "NO");
  return good && expected == steps_done && epochs > 0;
}

/// What of a checkpoint must agree: the count of the optimizer's updates is that of the run's steps.
bool is_of_one_step(const checkpoint::Loaded& loaded) {
  const State *run = loaded.find("run"), *optimizer = loaded.find("optimizer"),
              *ema = loaded.find("hooks.ema");
  if (run == nullptr || optimizer == nullptr || ema == nullptr || loaded.find("model") == nullptr)
    return false;
  bool same =
      StateReader(*run).integer("step") == loaded.step && StateReader(*ema).integer("updates") == loaded.step;
  for (const auto& [name, scalar] : optimizer->scalars) same = same && scalar == Scalar(loaded.step);
  return same;
}

bool swap_without_end(int swaps) {
  const Folder folder;
  constexpr std::int64_t samples = 96;
  const std::string witness = folder / "witness.txt";
  const std::string text =
      head +
      "[data]\ntype = \"synthetic\"\nkind = \"classification\"\nshape = [8]\nclasses = 3\nworkers = 2\n"
      "train = { size = 96, batch_size = 16, shuffle = true }\nval = { size = 32 }\n"
      "[trainer]\nmax_duration = \"100000000ba\"\neval_interval = \"50ba\"\n"
      "[optimizer]\ntype = \"adamw\"\nlr = 0.0001\n[schedule]\ntype = \"constant\"\n"
      "[[metrics]]\ntype = \"accuracy\"\n[[hooks]]\ntype = \"ema\"\ndecay = 0.9\n"
      "[[hooks]]\ntype = \"witness\"\nfile = \"" +
      witness + "\"\n[checkpoint]\ntype = \"async\"\ninterval = \"5ba\"\nkeep_last = 2\n";
  const auto registry = plugins::Registry::scan({TRAINYARD_PLUGIN_DIR, TRAINYARD_FAULTY});
  std::atomic<int> stop{0};
  train::LoopParts parts;
  parts.signal = &stop;
  LiveRun run(text, registry, {}, {}, std::move(parts));

  std::string refused;
  std::thread client([&] {
    constexpr std::pair<const char*, const char*> slots[] = {
        {"optimizer", "adamw"}, {"schedule", "constant"},
        {"data", "synthetic"},  {"data.sampler", "random"},
        {"model", "mlp"},       {"loss", "cross_entropy"},
        {"hooks.ema", "ema"},   {"metrics.accuracy", "accuracy"},
        {"checkpoint", "async"}};
    try {
      control::Client asks(run.directory());
      for (int i = 0; i < swaps; ++i) {
        control::Request request{.verb = control::Verb::swap};
        std::tie(request.slot, request.type) = slots[static_cast<std::size_t>(i) % std::size(slots)];
        request.watch = Duration::parse(i % 7 == 0 ? "2ba" : "0ba");
        asks.ask(request, std::chrono::minutes(2));
      }
    } catch (const std::exception& error) {
      refused = error.what();
    }
    stop = 1;
  });
  std::int64_t read = 0, mixed = 0, damaged = 0, went_back = 0;
  std::thread reader([&] {
    for (std::int64_t newest = 0; stop == 0; ::usleep(1000)) {
      const auto loaded = checkpoint::load_newest(
          run.directory() + "/checkpoints", [&](const std::string& path, const std::string&) {
            damaged += fs::exists(path);  // else it was cleared away while it was read
          });
      if (!loaded) continue;
      ++read;
      mixed += !is_of_one_step(*loaded);
      went_back += loaded->step < newest;
      newest = std::max(newest, loaded->step);
    }
  });
  run.fit();
  client.join();
  reader.join();
  std::printf("%d swaps of 9 slots in turn, asynchronous checkpoints every 5 steps, and a reader\n", swaps);
  if (!refused.empty()) std::printf("  refused: %s\n", refused.c_str());
  std::printf("  committed %lld; checkpoints read %lld, mixed %lld, damaged %lld, gone back %lld\n",
              static_cast<long long>(run->live().swaps), static_cast<long long>(read),
              static_cast<long long>(mixed), static_cast<long long>(damaged),
              static_cast<long long>(went_back));
  const bool seen = check_witness(witness, run->clock().step, samples);
  return seen && refused.empty() && run->live().swaps == swaps && read > 0 &&
         mixed + damaged + went_back == 0;
}

int main(int argc, char** argv) {
  bool quick = false;
  int swaps = 0;
  std::uint64_t seed = 17;
  for (int i = 1; i < argc; ++i) {
    quick = quick || std::strcmp(argv[i], "--quick") == 0;
    if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) seed = std::stoull(argv[i + 1]);
    if (std::strcmp(argv[i], "--swaps") == 0 && i + 1 < argc) swaps = std::stoi(argv[i + 1]);
  }
  at::set_num_threads(1);
  Random random(seed);
  // With --swaps those alone: what a build that looks for races takes minutes for.
  const bool faults_good = swaps > 0 || inject(quick ? 3 : 50, random);
  const bool swaps_good = swap_without_end(swaps > 0 ? swaps : quick ? 90 : 2000);
  if (!faults_good || !swaps_good) std::printf("  A bar is missed.\n");
  return faults_good && swaps_good ? 0 : 1;
}

}  // namespace
}  // namespace trainyard::chaos

int main(int argc, char** argv) {
  return trainyard::chaos::main(argc, argv);
}
