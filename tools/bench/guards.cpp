// What the guards cost: the loop with them and without, in turn; and what cannot be switched off, by itself.
#include <ATen/Parallel.h>

#include <cstring>

#include "core/engine/events/fault_report.hpp"
#include "core/engine/events/watchdog.hpp"
#include "core/engine/events/where.hpp"
#include "tools/bench/contest.hpp"
#include "tools/bench/ours.hpp"
#include "tools/bench/process.hpp"

namespace trainyard::bench {
namespace {

/// The notes of one step of the loop: each event goes into the trail, each call into a plugin into the frame.
void note_a_step(events::Trail& trail, std::int64_t step) {
  constexpr int events = 16, calls = 8;
  for (int i = 0; i < events; ++i) {
    trail.add(static_cast<Event>(i), step);
    asm volatile("" ::: "memory");
  }
  for (int i = 0; i < calls; ++i) {
    const events::CallScope scope("optimizer", "adamw");
    asm volatile("" ::: "memory");
  }
}

void measure(int rounds, int steps) {
  const std::vector<std::string> off = {"guard.nan=off", "guard.deadline=0s", "guard.look_for_writes=0ba"};
  std::vector<std::string> writer = {"hooks=[{ type = \"writer\" }]"};
  std::vector<std::string> writer_off = off;
  writer_off.push_back(writer.front());
  Ours without(off), again(off), with({}), written_without(writer_off), written_with(writer);
  events::Trail trail;
  // As in a run: ready for the worst, and a thread that looks once a second. Both are there in all rounds.
  const Folder folder;
  const report::FaultReport faults(folder.path(), "");
  const events::Watchdog watchdog(events::Watchdog::Seconds(60), {.overdue = [](const std::string&) {}});
  const std::vector<Contender> contenders = {
      {"guards off", [&] { without(steps); }},
      {"guards off, once more (noise)", [&] { again(steps); }},
      {"default guards (bar 1.01)", [&] { with(steps); }},
      {"frames and trail of a step, alone",
       [&] {
         for (int i = 0; i < steps; ++i) note_a_step(trail, i);
       }},
      {"a writer of gradients, guards off", [&] { written_without(steps); }},
      {"a writer of gradients, default guards", [&] { written_with(steps); }},
  };
  const std::vector<Times> times = contest(contenders, rounds);
  print("Guards, a step", "us a step", 1e-6, steps, contenders, times);
  const double frames = ratio(times[3], times[0]);
  std::printf(
      "  frames and trail are %.4f of a step; with what can be switched off, the guards take\n"
      "  %.4f of a step, and %.4f where a hook writes gradients at each (bar 0.01)\n",
      frames, frames + ratio(times[2], times[0]) - 1.0, frames + ratio(times[5], times[4]) - 1.0);
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  at::set_num_threads(1);
  std::printf("MLP 64-128-10, batch 64, one thread\n\n");
  trainyard::bench::measure(quick ? 3 : 150, quick ? 20 : 100);
}
