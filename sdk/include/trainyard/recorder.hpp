// recorder/1: takes tensors out of a training, for rules and for later (`[recorder]`). It subscribes to
// events like any hook; the host tells it which rules there are.
//
// Records of Mode::global, about two a second, where a rule looks at them or the recorder was told to:
//   system/cpu, system/iowait         share of each core's time, in percent [cores]; of the machine
//   system/memory                     share of the machine's memory that is in use, in percent
//   system/gpu, system/gpu_memory     share of the time that each NVIDIA GPU is at work, and of its memory in
//                                     use, in percent [GPUs]; absent without its driver
//   system/disk_read, system/disk_write   bytes per second, of the machine
//   profile/step_seconds              length of each step that ended since the record before [steps]; absent
//                                     where none did
//   profile/data, profile/forward, profile/loss, profile/backward, profile/optimizer   seconds of these steps
//                                     that went into fetching, the model, the loss, backward, the update
//   profile/loader_workers            threads that load data; 0: the loop's own
//   profile/initialization            seconds from the recorder's opening to the first step
#pragma once

#include <string>
#include <vector>

#include <trainyard/context.hpp>
#include <trainyard/contract.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/rule_set.hpp>
#include <trainyard/sink.hpp>

TRAINYARD_CONTRACT("recorder.hpp");

namespace trainyard {

class Recorder : public Plugin {
 public:
  static constexpr Kind kind{"recorder", 1};

  /// Called once, before any event. It may write below `run.directory`.
  virtual void open(const RunInfo& run) = 0;

  /// Called with the rules of the run: after `open`, and again, at a safe point, when one was swapped. Once
  /// it returns, rules that were attached before and are not among them are called no more; one that is in a
  /// call is waited for a moment, then left behind. Loop thread.
  virtual void attach(std::vector<NamedRule> rules, const RunScale& scale) = 0;
};

}  // namespace trainyard
