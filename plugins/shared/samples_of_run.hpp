// What a run file says of the size of a pass, for who plans ahead of the first one.
#pragma once

#include <cstdint>

#include <trainyard/error.hpp>
#include <trainyard/executor.hpp>

namespace run_file {

/// Returns the samples of a micro-batch of training, or 0 where a bench has no run file.
inline std::int64_t samples_of_run(const trainyard::Workbench& bench) {
  using trainyard::Table;
  using trainyard::Value;
  const auto within = [](const Table* table, std::string_view name) -> const Value* {
    return table == nullptr ? nullptr : table->find(name);
  };
  const auto table = [](const Value* value) { return value == nullptr ? nullptr : value->get_if<Table>(); };
  try {
    const Table run = bench.run_file({});
    const Value* const samples =
        within(table(within(table(within(&run, "data")), "train")), "micro_batch_size");
    const std::int64_t* const number = samples == nullptr ? nullptr : samples->get_if<std::int64_t>();
    return number == nullptr ? 0 : *number;
  } catch (const trainyard::PluginError&) {  // a bench of some test
    return 0;
  }
}

}  // namespace run_file
