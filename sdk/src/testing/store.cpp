#include <trainyard/testing/store.hpp>

#include <utility>

#include <ATen/ops/full.h>

#include <trainyard/error.hpp>

#include <trainyard/testing/state.hpp>

namespace trainyard::testing {

Snapshot tiny_snapshot(std::int64_t step) {
  State model{.owner = "model", .version = "1.0.0", .scalars = {}, .tensors = {}};
  model.tensors["fc1.weight"] = at::full({4, 4}, static_cast<double>(step));
  State run{.owner = "run", .version = "1.0.0", .scalars = {}, .tensors = {}};
  run.scalars["step"] = step;
  return {.step = step, .states = {std::move(model), std::move(run)}, .fixed = {}, .metrics = {}};
}

void FakeStore::commit(const Snapshot& snapshot) {
  const std::lock_guard lock(mutex_);
  if (full) throw DataError("the disk is full");
  Snapshot kept = snapshot;
  for (State& state : kept.states) state = copy(state);
  for (State& state : kept.fixed) state = copy(state);
  committed_.push_back(std::move(kept));
}

std::vector<Snapshot> FakeStore::committed() const {
  const std::lock_guard lock(mutex_);
  return committed_;
}

std::vector<std::int64_t> FakeStore::steps() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> steps;
  for (const Snapshot& each : committed_) steps.push_back(each.step);
  return steps;
}

}  // namespace trainyard::testing
