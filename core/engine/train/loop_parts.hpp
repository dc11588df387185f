// The parts that a loop runs on.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include <trainyard/compressor.hpp>
#include <trainyard/executor.hpp>
#include <trainyard/loss.hpp>
#include <trainyard/network.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/schedule.hpp>

#include "core/engine/distributed/world.hpp"
#include "core/engine/events/bus.hpp"
#include "core/engine/train/data_loader.hpp"
#include "core/engine/train/loop_context.hpp"
#include "core/engine/train/loop_host.hpp"
#include "core/engine/train/metric_slots.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

/// A split to evaluate on.
struct EvaluationSplit {
  std::string name;  ///< "val", "test"
  data::Loader* loader = nullptr;
};

/// All of it outlives the loop. Its owner changes it only between steps: that is how plugins are swapped.
struct LoopParts {
  const config::RunConfig* config = nullptr;
  events::Bus* bus = nullptr;
  LoopContext* context = nullptr;
  at::Device device = at::kCPU;
  distributed::World* world = nullptr;  ///< null: a single rank
  Filled<Network> network;
  const DropoutPlan* dropout = nullptr;  ///< the network's; null: none
  Filled<Loss> loss;
  Filled<Optimizer> optimizer;
  Filled<const ScheduleCurve> schedule;
  Filled<Executor> executor;
  Filled<Compressor> compressor;     ///< empty without one
  bool asks_at_before_step = false;  ///< a hook may ask on some rank, even if it is disabled on others
  Filled<data::Loader> train;
  /// The first is evaluated every eval_interval, all of them at the end.
  std::vector<EvaluationSplit> evaluations;
  MetricSlots metrics;                      ///< values are reported under the ids of their slots
  std::vector<MetricSlots> member_metrics;  ///< the same for each member of an executor that has several
  RunScale scale;
  LoopHost* host = &no_host;
  LoopOwner* owner = &no_owner;
  Saver* saver = nullptr;                    ///< null: nothing is ever saved
  const std::atomic<int>* signal = nullptr;  ///< set by a signal handler: end at the next step boundary
};

}  // namespace trainyard::train
