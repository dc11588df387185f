// The parts of a live run. A swap replaces some of them between two steps.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/batch.hpp>
#include <trainyard/duration.hpp>

#include "core/engine/distributed/world.hpp"
#include "core/engine/events/bus.hpp"
#include "core/engine/train/layer.hpp"
#include "core/engine/train/loop_context.hpp"
#include "core/rundir/learned.hpp"
#include "core/rundir/quarantine.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

struct Live {
  config::RunConfig config;
  std::string config_text;  ///< as a run file
  at::Device device = at::kCPU;
  distributed::World* world = nullptr;            ///< null: a single rank
  BatchSchema schema;                             ///< of the training data
  std::vector<control::Quarantined> quarantined;  ///< plugins it was begun without, which no swap may bring
  std::vector<std::string> left_out;              ///< addresses of those in the run file
  std::optional<report::Learned> learned;  ///< from the training split; none: its dataset learns nothing
  RunScale scale;
  Layer layer;  ///< its plugins are those of config.slots, in that order
  LoopContext context;
  std::vector<std::unique_ptr<events::Inspector>> inspectors;
  std::unique_ptr<events::Bus> bus;
  std::int64_t swaps = 0;  ///< number of swaps committed so far, including before a resume
};

}  // namespace trainyard::train
