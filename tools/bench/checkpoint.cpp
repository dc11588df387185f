// How long a checkpoint keeps a run waiting: the asynchronous save against the blocking one, and against a
// plain copy of the same memory; and the look that the host takes at the weights ahead of each. They take
// turns; after each the disk is given time to finish. The first save of a run, which takes its memory, counts
// as any.
//   bench_checkpoint [--quick] [--megabytes N] [--rounds N]
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "core/engine/save/store.hpp"
#include "core/engine/train/finite_check.hpp"
#include "support/saver.hpp"
#include "tools/bench/process.hpp"

namespace trainyard::bench {
namespace {

template <class Action>
double seconds(Action&& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Memory of this process that lies in RAM, in bytes.
double resident() {
  std::ifstream stream("/proc/self/statm");
  double pages = 0, in_ram = 0;
  stream >> pages >> in_ram;
  return in_ram * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

void print(const char* what, double first, const std::vector<double>& times, double gigabytes,
           double against) {
  const double best = *std::min_element(times.begin(), times.end());
  std::vector<double> sorted = times;
  std::sort(sorted.begin(), sorted.end());
  std::printf("  %-28s %9.1f %9.1f %9.1f %9.2f %9.3f\n", what, first * 1e3, best * 1e3,
              sorted[sorted.size() / 2] * 1e3, gigabytes / best, best / against);
  std::fflush(stdout);
}

int main(int argc, char** argv) {
  bool quick = false;
  std::int64_t megabytes = 1000;
  int rounds = 8;
  for (int i = 1; i < argc; ++i) {
    quick = quick || std::strcmp(argv[i], "--quick") == 0;
    if (std::strcmp(argv[i], "--megabytes") == 0 && i + 1 < argc) megabytes = std::stoll(argv[i + 1]);
    if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) rounds = std::stoi(argv[i + 1]);
  }
  if (quick) megabytes = 32, rounds = 2;
  at::set_num_threads(1);
  constexpr std::int64_t tensors = 50;
  Snapshot state;
  state.states.push_back({"model", "1", {}, {}});
  for (std::int64_t i = 0; i < tensors; ++i)
    state.states[0].tensors["weight" + std::to_string(i)] = at::ones({megabytes * 250'000 / tensors});
  std::vector<at::Tensor> copies;
  std::vector<NamedTensor> weights;
  for (const auto& [name, tensor] : state.states[0].tensors) {
    copies.push_back(at::empty_like(tensor));
    weights.push_back({name, tensor});
  }

  const auto plain_copy = [&] {
    std::size_t i = 0;
    for (const auto& [name, tensor] : state.states[0].tensors)
      std::memcpy(copies[i++].data_ptr(), tensor.const_data_ptr(), tensor.nbytes());
  };
  const double first_copy = seconds(plain_copy);

  const Folder folder;
  checkpoint::Store blocking_store(folder.path() + "/blocking", {}),
      async_store(folder.path() + "/async", {});
  const double before = resident();
  test::Saver blocking("full", blocking_store);
  const std::int64_t budget = megabytes * 1'000'000 / (1 << 20) + 2;  // one arena
  test::Saver async("async", async_store, test::table({{"memory_budget", budget}}));

  const auto next = [&] {
    ++state.step;
    return state;
  };
  std::vector<double> copy, look, block, stall;
  double most = 0;
  for (int round = 0; round <= rounds; ++round) {  // the first save takes its memory
    copy.push_back(seconds(plain_copy));
    look.push_back(seconds([&] { train::first_infinite(weights); }));
    block.push_back(seconds([&] { blocking.plugin->take(next()); }));
    stall.push_back(seconds([&] { async.plugin->take(next()); }));
    most = std::max(most, resident() - before);
    async.plugin->drain();
    most = std::max(most, resident() - before);
  }
  const auto take_first = [](std::vector<double>& times) {
    const double first = times.front();
    times.erase(times.begin());
    return first;
  };
  const double first_look = take_first(look), first_block = take_first(block),
               first_stall = take_first(stall);
  const double best_copy = *std::min_element(copy.begin(), copy.end());
  const double best_look = *std::min_element(look.begin(), look.end());
  const double best_block = *std::min_element(block.begin(), block.end());
  const double best_stall = *std::min_element(stall.begin(), stall.end());
  const double gigabytes = static_cast<double>(megabytes) / 1e3;
  std::printf("A checkpoint of %lld MB, %d rounds\n  %-28s %9s %9s %9s %9s %9s\n",
              static_cast<long long>(megabytes), rounds, "", "first ms", "min ms", "median", "GB/s",
              "to copy");
  print("a plain copy", first_copy, copy, gigabytes, best_copy);
  print("the look at the weights", first_look, look, gigabytes, best_copy);
  print("blocking save (full)", first_block, block, gigabytes, best_copy);
  print("stall of an async save", first_stall, stall, gigabytes, best_copy);
  const auto mean = [](double first, const std::vector<double>& times) {
    return std::accumulate(times.begin(), times.end(), first) / static_cast<double>(times.size() + 1);
  };
  std::printf(
      "  stall to blocking save: the first %.3f, later %.3f, mean of all %.3f (bar 0.25 each)\n"
      "  to a plain copy: the first, into new memory as well, %.3f, later %.3f (bar 1.5 each)\n",
      first_stall / first_block, best_stall / best_block, mean(first_stall, stall) / mean(first_block, block),
      first_stall / first_copy, best_stall / best_copy);
  std::printf("  all of it weights, the look is %.1f %% of a blocking save\n", 100 * best_look / best_block);
  std::printf("  memory taken %.0f MB, budget %.0f MB\n", most / 1e6,
              static_cast<double>(budget << 20) / 1e6);
  return 0;
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  return trainyard::bench::main(argc, argv);
}
