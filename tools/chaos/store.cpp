// What kills and damage do to checkpoints: kill -9 at random moments of asynchronous saves, every file cut
// off at every 4 KiB, single bits flipped.
//   chaos_store [--quick] [--seed N]
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/engine/save/load.hpp"
#include "core/engine/save/store.hpp"
#include "core/rundir/folder.hpp"
#include "support/folder.hpp"
#include "support/saver.hpp"

namespace trainyard::chaos {
namespace {

namespace fs = std::filesystem;
using checkpoint::Loaded;
using checkpoint::Manifest;
using checkpoint::Store;
using Random = std::mt19937_64;

std::int64_t draw(Random& random, std::int64_t below) {
  return std::uniform_int_distribution<std::int64_t>(0, below - 1)(random);
}

/// A state that fills three files, `floats` in each.
Snapshot state_of(std::int64_t floats) {
  const auto tensors = [&](std::int64_t count) {
    std::map<std::string, at::Tensor, std::less<>> made;
    for (std::int64_t i = 0; i < count; ++i) made["tensor" + std::to_string(i)] = at::zeros({floats / count});
    return made;
  };
  Snapshot snapshot;
  snapshot.states.push_back({"run", "1", {{"step", std::int64_t{0}}}, {}});
  snapshot.states.push_back({"model", "1", {}, tensors(8)});
  snapshot.states.push_back({"optimizer/adamw", "1", {{"step", std::int64_t{0}}}, tensors(8)});
  snapshot.states.push_back({"hook/ema", "1", {}, tensors(4)});
  return snapshot;
}

/// Gives every value of it the step's number.
void stamp(Snapshot& snapshot, std::int64_t step) {
  snapshot.step = step;
  for (State& state : snapshot.states) {
    for (auto& [name, value] : state.scalars) value = step;
    for (auto& [name, tensor] : state.tensors) tensor.fill_(static_cast<double>(step));
  }
}

/// Everything of it carries the number of its step.
bool is_of_one_step(const Loaded& loaded) {
  bool same = loaded.states.size() == 4 && checkpoint::step_of(loaded.path) == loaded.step;
  for (const State& state : loaded.states) {
    for (const auto& [name, value] : state.scalars) same = same && value == Scalar(loaded.step);
    for (const auto& [name, tensor] : state.tensors)
      same = same && tensor.eq(static_cast<double>(loaded.step)).all().item<bool>();
  }
  return same;
}

/// Saves as fast as it can until somebody ends it, from `step` on; tells when it begins.
[[noreturn]] void save_for_ever(const std::string& folder, std::int64_t step, int ready) {
  Store store(folder, {.keep_last = 2});
  test::Saver saver("async", store);
  Snapshot live = state_of(1 << 16);
  if (::write(ready, "g", 1) != 1) ::_exit(1);
  for (;; ++step) {
    stamp(live, step);
    saver.plugin->take(live);
    stamp(live, -1);
  }
}

struct Kills {
  int done = 0, complete = 0, went_back = 0, in_a_save = 0, damaged = 0;
  std::int64_t saves = 0;
};

Kills kill_saves(int count, Random& random) {
  const test::Folder folder;
  Kills kills;
  std::int64_t newest = 0;
  for (; kills.done < count; ++kills.done) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe can be made");
    const pid_t child = ::fork();
    if (child == 0) save_for_ever(folder.path(), std::max<std::int64_t>(newest, 1), ends[1]);
    ::close(ends[1]);
    char byte = 0;
    const bool began = ::read(ends[0], &byte, 1) == 1;
    ::close(ends[0]);
    ::usleep(static_cast<useconds_t>(draw(random, 200'000)));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!began || !WIFSIGNALED(status)) throw std::runtime_error("the saving process ended by itself");

    bool left_something = false;
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      const std::string name = entry.path().filename().string();
      left_something = left_something || name.find(".tmp-") != name.npos || name.find(".old-") != name.npos;
    }
    kills.in_a_save += left_something;
    for (const std::string& each : checkpoint::list(folder.path()))
      kills.damaged += !checkpoint::verify(each).empty();
    const auto loaded = checkpoint::load_newest(
        folder.path(), [&](const std::string&, const std::string&) { ++kills.damaged; });
    const std::int64_t found = loaded ? loaded->step : 0;
    // Before the first commit ever there is nothing to load.
    kills.complete += loaded ? is_of_one_step(*loaded) : newest == 0;
    kills.went_back += found < newest;
    newest = std::max(found, newest);
  }
  kills.saves = newest;
  return kills;
}

struct Damages {
  int done = 0, found = 0, named = 0, recovered = 0;
  bool all() const { return done == found && done == named && done == recovered; }
};

/// Two checkpoints, the newer of which is damaged.
class Victim {
 public:
  Victim() {
    Store store(folder_.path(), {.keep_last = 2});
    Snapshot snapshot = state_of(1 << 16);
    for (const std::int64_t step : {1, 2}) {
      stamp(snapshot, step);
      store.commit(snapshot);
    }
    path_ = checkpoint::list(folder_.path()).back();
    manifest_ = checkpoint::read_manifest(path_);
    for (const auto& entry : fs::directory_iterator(path_))
      files_.push_back({entry.path().filename().string(), test::read_file(entry.path().string())});
  }

  struct File {
    std::string name, bytes;
  };
  const std::vector<File>& files() const { return files_; }

  /// What a message about this byte has to name.
  std::string owner_of(const File& file, std::uint64_t byte) const {
    if (file.name == checkpoint::manifest_name) return file.name;
    for (const checkpoint::TensorEntry& tensor : manifest_.tensors)
      if (tensor.file == file.name && byte >= tensor.offset && byte < tensor.offset + tensor.length)
        return '"' + checkpoint::stored_name(tensor.owner, tensor.name) + '"';
    return "header";
  }

  /// Tries a changed file, and puts the right one back.
  void with(const File& file, const std::string& bytes, const std::string& culprit, Damages& damages) const {
    write(file.name, bytes);
    const std::vector<std::string> told = checkpoint::verify(path_);
    const auto names = [&](const std::string& text) {
      return text.find(file.name) != text.npos && text.find(culprit) != text.npos;
    };
    std::string why;
    const auto loaded = checkpoint::load_newest(
        folder_.path(), [&](const std::string&, const std::string& reason) { why = reason; });
    ++damages.done;
    damages.found += !told.empty() && !why.empty();
    damages.named += std::any_of(told.begin(), told.end(), names) && why.find(file.name) != why.npos;
    damages.recovered += loaded && loaded->step == 1 && is_of_one_step(*loaded);
    write(file.name, file.bytes);
  }

 private:
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
  }

  test::Folder folder_;
  std::string path_;
  Manifest manifest_;
  std::vector<File> files_;
};

Damages cut_off(const Victim& victim, std::size_t every) {
  Damages damages;
  for (const Victim::File& file : victim.files()) {
    for (std::size_t size = 0; size < file.bytes.size(); size += every)
      victim.with(file, file.bytes.substr(0, size), victim.owner_of(file, size), damages);
    const std::size_t last = file.bytes.size() - 1;
    victim.with(file, file.bytes.substr(0, last), victim.owner_of(file, last), damages);
  }
  return damages;
}

Damages flip_bits(const Victim& victim, int count, Random& random) {
  Damages damages;
  for (int i = 0; i < count; ++i) {
    const Victim::File& file = victim.files()[static_cast<std::size_t>(i) % victim.files().size()];
    const std::int64_t bit = draw(random, static_cast<std::int64_t>(file.bytes.size()) * 8);
    std::string bytes = file.bytes;
    char& byte = bytes[static_cast<std::size_t>(bit / 8)];
    byte = static_cast<char>(byte ^ 1 << bit % 8);
    victim.with(file, bytes, victim.owner_of(file, static_cast<std::uint64_t>(bit / 8)), damages);
  }
  return damages;
}

void print(const char* what, const Damages& damages) {
  std::printf("  %-34s %5d   found %d, named %d, the older one loaded %d\n", what, damages.done,
              damages.found, damages.named, damages.recovered);
}

int main(int argc, char** argv) {
  bool quick = false;
  std::uint64_t seed = 17;
  for (int i = 1; i < argc; ++i) {
    quick = quick || std::strcmp(argv[i], "--quick") == 0;
    if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) seed = std::stoull(argv[i + 1]);
  }
  at::set_num_threads(1);  // the children are forked: no pool of threads may exist
  Random random(seed);
  std::printf("Checkpoints under kills and damage (seed %llu)\n", static_cast<unsigned long long>(seed));
  const Kills kills = kill_saves(quick ? 10 : 200, random);
  std::printf(
      "  %-34s %5d   complete step loaded %d, damaged %d, gone back %d; inside a save %d, steps saved %lld\n",
      "kill -9 in asynchronous saves", kills.done, kills.complete, kills.damaged, kills.went_back,
      kills.in_a_save, static_cast<long long>(kills.saves));
  const Victim victim;
  const Damages cuts = cut_off(victim, quick ? 64 << 10 : 4 << 10);
  print(quick ? "cut off at every 64 KiB" : "cut off at every 4 KiB", cuts);
  const Damages flips = flip_bits(victim, quick ? 60 : 500, random);
  print("one bit flipped", flips);
  const bool good =
      kills.complete == kills.done && kills.damaged == 0 && kills.went_back == 0 && cuts.all() && flips.all();
  if (!good) std::printf("  A bar is missed: all of these should be equal, damaged and gone back none.\n");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace trainyard::chaos

int main(int argc, char** argv) {
  return trainyard::chaos::main(argc, argv);
}
