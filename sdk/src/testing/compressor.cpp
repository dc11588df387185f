#include <trainyard/testing/compressor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include <trainyard/compressor.hpp>
#include <trainyard/executor.hpp>
#include <trainyard/random.hpp>
#include <trainyard/testing/ranks.hpp>
#include <trainyard/testing/run.hpp>
#include <trainyard/testing/state.hpp>

namespace trainyard::testing {
namespace {

constexpr std::int64_t steps = 6;  ///< of a run; the state is saved after half of them

/// Makes two buckets, of one matrix and of two: as small as the compressor takes them.
std::vector<BucketPlan> buckets_for(const Compressor& plugin) {
  constexpr std::int64_t smallest = 8, largest = 4096;
  std::int64_t side = smallest;
  const auto taken = [&] { return plugin.takes({"fc1.weight", at::zeros({side, side})}); };
  while (!taken() && side < largest) side *= 2;
  if (!taken())
    throw PluginError("takes() refuses a parameter of " + std::to_string(side * side) + " numbers");
  const std::int64_t one = side * side, other = side * (side + 1);
  return {{.elements = one, .parts = {{"fc1.weight", 0, {side, side}}}},
          {.elements = one + other,
           .parts = {{"fc2.weight", 0, {side, side}}, {"fc3.weight", one, {side, side + 1}}}}};
}

/// Returns a rank's gradients of a bucket in a step. Most of them are the same on all ranks and in all steps,
/// so that whatever part is sent points where the sum does.
at::Tensor gradients_of(int rank, std::size_t bucket, std::int64_t step, std::int64_t elements) {
  at::Tensor common = at::empty({elements}), own = at::empty({elements});
  const std::string purpose = "bucket/" + std::to_string(bucket);
  fill_normal(common, RandomStream(1, purpose), 0.0, 1.0);
  fill_normal(own,
              RandomStream(2, purpose, static_cast<std::uint64_t>(step), static_cast<std::uint32_t>(rank)),
              0.0, 0.1);
  return own.mul_(common).add_(common);
}

/// Reduces the buckets of a rank in the middle of each step.
class Reducing final : public Executor {
 public:
  Reducing(Compressor& plugin, Ranks& ranks) : plugin_(&plugin), ranks_(&ranks) {}

  void step(Workbench& bench, StepWork& work) override {
    for (std::size_t i = 0; i < work.micros.size(); ++i) bench.backward(work, i);
    do reduce(work.step);
    while (bench.update() == Update::repeat);
  }
  /// Buckets that the run reduces from here on; none: its steps leave the compressor alone.
  std::vector<BucketPlan> buckets;
  /// Sums by name: "step 3, bucket 1".
  State sums;

 private:
  void reduce(std::int64_t step) {
    std::vector<at::Tensor> all;
    std::vector<std::unique_ptr<Exchange>> exchanges;
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      all.push_back(gradients_of(ranks_->rank(), i, step, buckets[i].elements));
      exchanges.push_back(plugin_->reduce(i, all[i], step));
    }
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      exchanges[i]->wait();
      sums.tensors["step " + std::to_string(step + 1) + ", bucket " + std::to_string(i)] = all[i];
    }
  }
  Compressor* plugin_;
  Ranks* ranks_;
};

/// The results of a run on a rank.
struct Left {
  State sums;
  State half;  ///< what the compressor saved after half of the steps
  State end;
};

/// Runs one rank. With states of all ranks the compressor begins with them, after half of the steps.
Left run_rank(MadePlugin& made, Ranks& ranks, const std::vector<State>& saved) {
  auto& plugin = static_cast<Compressor&>(made.base());
  made.host().facts.ranks = &ranks;
  TinyRun run({.steps = steps});
  Reducing executor(plugin, ranks);
  run.use(executor);
  if (!saved.empty()) run.step(steps / 2);
  executor.buckets = buckets_for(plugin);
  plugin.open(ranks, executor.buckets, run.scale());
  run.add(made);
  Left left;
  if (saved.empty()) {
    run.step(steps / 2);
    left.half = copy(made.saved());
  } else {
    std::vector<State> own;
    for (const State& each : saved) own.push_back(copy(each));
    plugin.load_all(own);
    run.fire(Event::after_load);
    run.fire(Event::fit_start);
  }
  run.step(steps / 2);
  left.sums = executor.sums;
  left.end = copy(made.saved());
  return left;
}

/// Returns the results of all ranks, in their order. The objects are made by this thread.
std::vector<Left> run_ranks(const BuiltPlugin& plugin, const Table& options, int ranks,
                            const std::vector<State>& saved = {}) {
  std::vector<std::unique_ptr<Made<Compressor>>> made;
  for (int rank = 0; rank < ranks; ++rank)
    made.push_back(std::make_unique<Made<Compressor>>(plugin, options));
  std::vector<Left> left(made.size());
  on_ranks(ranks, [&](Ranks& all) {
    const auto rank = static_cast<std::size_t>(all.rank());
    const std::unique_ptr<Made<Compressor>> own = std::move(made[rank]);  // gone before its ranks are
    left[rank] = run_rank(*own, all, saved);
  });
  return left;
}

/// Returns the first sum of a rank that differs from that of rank 0.
std::string unequal(const std::vector<Left>& ranks) {
  for (std::size_t rank = 1; rank < ranks.size(); ++rank)
    if (const auto found = differences(ranks[rank].sums, ranks[0].sums); !found.empty())
      return found.front() + ": rank " + std::to_string(rank) + " has another sum than rank 0";
  return {};
}

std::vector<State> saved_by(const std::vector<Left>& ranks) {
  std::vector<State> states;
  for (const Left& rank : ranks) states.push_back(rank.half);
  return states;
}

}  // namespace

std::string wrong_sums(const BuiltPlugin& plugin, const Table& options, int ranks) {
  const std::vector<Left> left = run_ranks(plugin, options, ranks);
  if (std::string found = unequal(left); !found.empty()) return found;
  double dot = 0.0;
  for (const auto& [name, sum] : left.front().sums.tensors) {
    if (!at::isfinite(sum).all().item<bool>()) return name + ": the sum has numbers that are not finite";
    const std::size_t bucket = name.back() - '0';
    dot += at::dot(sum, gradients_of(0, bucket, 0, sum.numel())).item<double>();
  }
  if (dot > 0.0) return {};
  return "the sums of " + std::to_string(steps) +
         " steps do not point where the gradients do (their product is " + std::to_string(dot) + ")";
}

std::string wrong_states(const BuiltPlugin& plugin, const Table& options, int ranks) {
  const std::string mend = "; save() has to hold all that a later step depends on, and load_all() to take it";
  const std::vector<Left> whole = run_ranks(plugin, options, ranks);
  const std::vector<State> saved = saved_by(whole);
  const std::vector<Left> resumed = run_ranks(plugin, options, ranks, saved);
  for (std::size_t rank = 0; rank < whole.size(); ++rank) {
    for (const auto& [name, sum] : resumed[rank].sums.tensors)
      if (digest(sum) != digest(whole[rank].sums.tensors.at(name)))
        return name + ": ranks that go on from what others saved have another sum" + mend;
    if (const auto found = differences(resumed[rank].end, whole[rank].end); !found.empty())
      return "ranks that go on from what others saved have another `" + found.front() + "`" + mend;
  }
  const auto tried = [&](const std::string& how, int count, const std::vector<State>& states) {
    try {
      const std::string found = unequal(run_ranks(plugin, options, count, states));
      return found.empty() ? found : how + ", " + found;
    } catch (const std::exception&) {
      return std::string();  // The compressor refused the states.
    }
  };
  std::string found = tried("with states of one rank less", ranks + 1, saved);
  for (const auto& [name, tensor] : saved.front().tensors) {
    if (!found.empty()) break;
    std::vector<State> part = saved;
    for (State& each : part) each.tensors.erase(name);
    found = tried("with states without `" + name + "`", ranks, part);
  }
  return found;
}

}  // namespace trainyard::testing
