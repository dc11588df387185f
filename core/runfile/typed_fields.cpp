#include "core/runfile/typed_fields.hpp"

#include "core/runfile/at_path.hpp"

namespace trainyard::config {
namespace {

/// Returns false where the file has no such table.
template <class Struct>
bool fill(const Table& resolved, std::string_view path, Struct& target) {
  const auto* table = at_path<Table>(resolved, path);
  if (table != nullptr) read(*table, target);
  return table != nullptr;
}

template <class Struct>
void fill(const Table& resolved, std::string_view path, std::optional<Struct>& target) {
  Struct given;
  if (fill(resolved, path, given)) target = std::move(given);
}

void fill_split(const Table& resolved, std::string_view path, std::optional<BatchKeys>& split) {
  EvaluationKeys keys;
  if (!fill(resolved, path, keys)) return;
  split.emplace();
  split->batch_size = split->micro_batch_size = keys.batch_size;
  split->take = keys.take;
}

}  // namespace

void fill_in(const Table& resolved, RunConfig& config) {
  fill(resolved, "run", config.run);
  fill(resolved, "run.threads", config.threads);
  fill(resolved, "data", config.data);
  fill(resolved, "data.train", config.train);
  fill_split(resolved, "data.val", config.val);
  fill_split(resolved, "data.test", config.test);
  fill(resolved, "trainer", config.trainer);
  fill(resolved, "trainer.grad_clip", config.grad_clip);
  fill(resolved, "guard", config.guard);
  fill(resolved, "distributed", config.distributed);
  fill(resolved, "logging", config.logging);
}

}  // namespace trainyard::config
