// What saves and failures cost with full and with partial recovery, by the clock: an emulation in one
// process (cpr_emulation.hpp) of a job of 56 hours that fails twice, on 8 nodes. An hour is as long as makes
// a save of everything, as it is measured, take 0.05 of it. Saves and loads are real and stop the loop; the 0.1 hours
// until there is a new node are slept; steps that are lost are done again.
//   chaos_cpr_overhead [--quick] [--seed N]
// After sections 3 and 5.2 of CPR (plugins/checkpointer/cpr/overhead.hpp).
#include "cpr_emulation.hpp"

#include <ATen/Parallel.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "core/engine/train/memory.hpp"
#include "plugins/checkpointer/cpr/overhead.hpp"

namespace trainyard::chaos {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Of the pattern, in hours.
constexpr double duration = 56.0, mtbf = 28.0, save = 0.05, reschedule = 0.1;
constexpr double target_pls = 0.1;
constexpr int failures = 2;

/// Seconds that `work` takes.
template <class Work>
double timed(Work&& work) {
  const auto began = SteadyClock::now();
  work();
  return std::chrono::duration<double>(SteadyClock::now() - began).count();
}

/// The pattern in this machine's time.
struct Scale {
  double hour = 0.0;  ///< seconds
  double step = 0.0;
  std::size_t steps = 0;  ///< of the job

  double in_steps(double hours) const { return hours * hour / step; }
};

struct Cost {
  double useful = 0.0;  ///< seconds of steps that are not done again
  double saves = 0.0, recoveries = 0.0, again = 0.0;
  std::size_t steps_again = 0;
  int writes = 0;

  double overhead() const { return (saves + recoveries + again) / useful; }
};

/// A job on its nodes.
class Node {
 public:
  Node(const Setting& setting, const Clicks& clicks)
      : clicks_(clicks),
        training_(setting, clicks),
        tables_(training_.tables()),
        dense_(training_.dense()),
        layout_(setting.rows),
        images_(layout_),
        dense_image_(images_.folder() + "/dense") {
    for (const Batch& batch : clicks.train) columns_.push_back(columns_of(batch));
  }

  void step(std::size_t number) { training_.step(number % clicks_.train.size()); }
  /// The rows that it looks up, as the model tells them.
  const at::Tensor& columns(std::size_t number) const { return columns_[number % columns_.size()]; }
  const std::vector<cpr::ShardTable>& tables() const { return tables_; }
  Images& images() { return images_; }

  void save_all(std::size_t step) {
    images_.write_all(static_cast<std::int64_t>(step), tables_);
    dense_image_.write_base(static_cast<std::int64_t>(step), dense_);
  }
  void load_all() {
    for (std::size_t shard = 0; shard < shards; ++shard) images_.restore(shard, tables_);
    for (const cpr::ShardTable& saved : dense_image_.load())
      for (const cpr::ShardTable& own : dense_)
        for (const auto& [name, tensor] : own.values)
          if (own.name == saved.name) at::Tensor(tensor).copy_(saved.values.at(name));
  }

 private:
  const Clicks& clicks_;
  Training training_;
  std::vector<cpr::ShardTable> tables_, dense_;  ///< of the training, by handle
  Layout layout_;
  Images images_;
  cpr::ShardImage dense_image_;
  std::vector<at::Tensor> columns_;
};

/// Steps ahead of which a shard fails, ascending, and the shards.
std::vector<std::pair<std::size_t, std::size_t>> draw(std::size_t steps, std::uint64_t seed) {
  const RandomStream random(seed, "failures");
  std::vector<std::pair<std::size_t, std::size_t>> drawn;
  for (std::uint64_t i = 0; i < failures; ++i)
    drawn.emplace_back(1 + random.below(2 * i, steps - 1), random.below(2 * i + 1, shards));
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

void wait_for_a_node(const Scale& scale) {
  std::this_thread::sleep_for(std::chrono::duration<double>(reschedule * scale.hour));
}

Scale measure(const Setting& setting, const Clicks& clicks, bool quick) {
  Node node(setting, clicks);
  Scale scale;
  const std::size_t warm = 5, steps = quick ? 10 : 100;
  const int saves = quick ? 2 : 5;
  for (std::size_t step = 0; step < warm; ++step) node.step(step);
  scale.step = timed([&] {
                 for (std::size_t step = 0; step < steps; ++step) node.step(warm + step);
               }) /
               static_cast<double>(steps);
  node.save_all(0);
  const double took = timed([&] {
                        for (int i = 1; i <= saves; ++i) node.save_all(static_cast<std::size_t>(i));
                      }) /
                      saves;
  scale.hour = took / save;
  scale.steps = static_cast<std::size_t>(scale.in_steps(duration));
  if (quick) {  // so short that an hour is next to nothing
    scale.steps = 200;
    scale.hour = 200.0 * scale.step / duration;
  }
  std::printf("a step takes %.2f ms, a save %.1f ms: an hour is %.2f s, the job %zu steps\n",
              scale.step * 1e3, took * 1e3, scale.hour, scale.steps);
  return scale;
}

/// All go back to the last save. The best interval, by the formula of the model.
Cost full(Node& node, const Scale& scale, std::uint64_t seed) {
  const double interval = scale.in_steps(cpr::full_interval({.mtbf = mtbf}, {.save = save}));
  const auto apart = std::max<std::size_t>(1, static_cast<std::size_t>(std::lround(interval)));
  const auto drawn = draw(scale.steps, seed);
  auto next = drawn.begin();
  Cost cost;
  std::size_t saved = 0;
  node.save_all(0);
  for (std::size_t step = 0; step < scale.steps; ++step) {
    for (; next != drawn.end() && next->first == step; ++next) {
      cost.recoveries += timed([&] {
        wait_for_a_node(scale);
        node.load_all();
      });
      cost.steps_again += step - saved;
      cost.again += timed([&] {
        for (std::size_t again = saved; again < step; ++again) node.step(again);
      });
    }
    cost.useful += timed([&] { node.step(step); });
    if ((step + 1) % apart != 0) continue;
    cost.saves += timed([&] { node.save_all(step + 1); });
    ++cost.writes;
    saved = step + 1;
  }
  return cost;
}

/// The failed shard alone goes back; saves as rarely as the target allows.
Cost partial(Node& node, const Scale& scale, const std::string& policy, std::uint64_t seed) {
  const double interval =
      scale.in_steps(cpr::partial_interval({duration, mtbf, static_cast<double>(shards)}, target_pls));
  const auto drawn = draw(scale.steps, seed);
  auto next = drawn.begin();
  Cost cost;
  Saves saves(policy, node.tables(), node.images());
  for (std::size_t step = 0; step < scale.steps; ++step) {
    for (; next != drawn.end() && next->first == step; ++next)
      cost.recoveries += timed([&] {
        wait_for_a_node(scale);
        node.images().restore(next->second, node.tables());
      });
    cost.useful += timed([&] { node.step(step); });
    cost.saves += timed([&] { saves.tick(node.columns(step)); });
    if (!saves.due(step + 1, interval)) continue;
    cost.saves += timed([&] { saves.write(step + 1); });
    ++cost.writes;
  }
  return cost;
}

void print(const char* mode, const Cost& cost, double ratio) {
  std::printf("%-8s %6d %8.2f %10.2f %11zu %8.2f %9.2f %% %8.3f\n", mode, cost.writes, cost.saves,
              cost.recoveries, cost.steps_again, cost.again, cost.overhead() * 100.0, ratio);
}

int main(int argc, char** argv) {
  bool quick = false;
  std::uint64_t seed = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0)
      quick = true;
    else if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
      seed = std::stoull(argv[++i]);
    else
      throw ConfigError(std::string("no option ") + argv[i]);
  }
  train::keep_large_blocks();
  at::set_num_threads(1);
  const Setting setting = quick ? Setting{.rows = {10, 100, 1000, 4000}, .train = 20000}
                                : Setting{.rows = criteo_like(), .train = 100000};
  Clicks clicks;
  clicks.train = read(setting, "train", setting.train, clicks.schema);
  const Scale scale = measure(setting, clicks, quick);

  std::printf("recovery writes  saves s  recover s  steps again  again s  overhead     ratio\n");
  Node all(setting, clicks);
  const Cost of_full = full(all, scale, seed);
  print("full", of_full, 1.0);
  bool good = true;
  for (const char* policy : {"vanilla", "mfu", "ssu"}) {
    Node node(setting, clicks);
    const Cost cost = partial(node, scale, policy, seed);
    const double ratio = cost.overhead() / of_full.overhead();
    print(policy, cost, ratio);
    good &= cost.steps_again == 0 && cost.writes > 0 && (quick || ratio <= 0.12);
  }
  good &= of_full.steps_again > 0;
  if (quick) return good ? 0 : 1;  // too short for times
  std::printf("partial recovery costs at most 0.12 of what full recovery costs: %s\n", good ? "yes" : "NO");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace trainyard::chaos

int main(int argc, char** argv) {
  return trainyard::chaos::run_program("chaos_cpr_overhead",
                                       [&] { return trainyard::chaos::main(argc, argv); });
}
