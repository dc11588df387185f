// A checked run file as the engine takes it: the host's own tables as structs, every slot as the name of
// a plugin and the table of its options. Torch-free. Made by resolve() (resolve.hpp), which has reported
// everything that is wrong before this exists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/duration.hpp>
#include <trainyard/value.hpp>

#include "core/runfile/host_keys.hpp"

namespace trainyard::config {

/// A plugin in a slot.
struct SlotConfig {
  std::string slot;  ///< "optimizer", "model.dropout", "hooks[0]", "logging.sinks[1]"
  std::string kind;  ///< "optimizer"
  std::string type;  ///< name of the plugin
  std::string id;    ///< of an entry of a list: its `id`, else its type
  /// The plugin's own, checked against its manifest; without `type`, `id` and the host's keys.
  Table options;
  Origin origin;  ///< of the table
  HookKeys hook;  ///< of an entry of [[hooks]]

  /// What the slot is called from outside the file: "optimizer", and with its id in a list: "hooks.ema".
  std::string address() const {
    const std::size_t bracket = slot.find('[');
    return bracket == std::string::npos ? slot : slot.substr(0, bracket) + "." + id;
  }
};

/// One of [data.train], [data.val], [data.test].
struct SplitConfig : BatchKeys {
  SlotConfig dataset;  ///< options of [data] with those of the split on top
};

/// Another plugin, or other options, in a slot of a running training.
struct SwapRequest {
  std::string slot;  ///< SlotConfig::address
  std::string type;  ///< empty: the one that is there
  Table options;     ///< only those that are given
  Carry carry = Carry::state;
  std::string watch = "5ba";  ///< length for which the old one can still come back
};

/// An entry of [[swap]].
struct PlannedSwap {
  Duration at;
  SwapRequest request;
};

struct RunConfig {
  RunKeys run;
  ThreadKeys threads;
  DataKeys data;
  TrainerKeys trainer;
  std::optional<GradClip> grad_clip;
  std::optional<EarlyStopping> early_stopping;
  GuardKeys guard;
  LoggingKeys logging;
  std::vector<PlannedSwap> swaps;  ///< [[swap]]

  SplitConfig train;
  std::optional<SplitConfig> val, test;
  SlotConfig sampler;  ///< for training; `shuffle = true` makes it "random", else "sequential"
  SlotConfig model, loss, optimizer, schedule, checkpoint;
  std::optional<SlotConfig> dropout;
  std::optional<SlotConfig> recorder;  ///< where there are rules, too
  std::vector<SlotConfig> metrics, rules, hooks, sinks;

  /// Every slot in config order, which is the order of last resort of their hooks: model, dropout, loss,
  /// metrics, data, sampler, optimizer, schedule, checkpoint, rules, recorder, hooks, sinks.
  std::vector<const SlotConfig*> slots() const;

  /// The whole file, defaults filled in: what `config show` prints and the run directory keeps.
  Table resolved;
};

inline std::vector<const SlotConfig*> RunConfig::slots() const {
  std::vector<const SlotConfig*> all = {&model};
  if (dropout) all.push_back(&*dropout);
  all.push_back(&loss);
  for (const SlotConfig& metric : metrics) all.push_back(&metric);
  all.push_back(&train.dataset);
  for (const std::optional<SplitConfig>* split : {&val, &test})
    if (*split) all.push_back(&(*split)->dataset);
  all.insert(all.end(), {&sampler, &optimizer, &schedule, &checkpoint});
  for (const SlotConfig& rule : rules) all.push_back(&rule);
  if (recorder) all.push_back(&*recorder);
  for (const SlotConfig& hook : hooks) all.push_back(&hook);
  for (const SlotConfig& sink : sinks) all.push_back(&sink);
  return all;
}

}  // namespace trainyard::config
