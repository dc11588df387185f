// A checked run file as the engine takes it: the host's own tables as typed fields, every slot as the name of
// a plugin and the table of its options. Torch-free. Made by resolve() (resolve.hpp), which has reported
// everything that is wrong before this exists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/duration.hpp>
#include <trainyard/value.hpp>

#include "core/config/guard_config.hpp"

namespace trainyard::config {

/// A plugin in a slot.
struct SlotConfig {
  std::string slot;  ///< "optimizer", "model.dropout", "hooks[0]", "logging.sinks[1]"
  std::string kind;  ///< "optimizer"
  std::string type;  ///< name of the plugin
  std::string id;    ///< of an entry of a list: its `id`, else its type
  Table
      options;  ///< the plugin's own, checked against its manifest; without `type`, `id` and the host's keys
  Origin origin;  ///< of the table
  // Of an entry of [[hooks]], in place of what its manifest says:
  std::string every;                       ///< the cadence of the hooks that have one
  std::optional<int> priority;             ///< of all its hooks
  std::vector<std::string> before, after;  ///< ids or plugin names, in addition
  bool disable_on_error = false;           ///< of a hook: `on_error = "disable"`, else the run stops

  /// What the slot is called from outside the file: "optimizer", and with its id in a list: "hooks.ema".
  std::string address() const {
    const std::size_t bracket = slot.find('[');
    return bracket == std::string::npos ? slot : slot.substr(0, bracket) + "." + id;
  }
};

enum class Precision : std::uint8_t { fp32, bf16_mixed, fp16_mixed };
enum class Deterministic : std::uint8_t { off, warn, strict };

/// One of [data.train], [data.val], [data.test].
struct SplitConfig {
  SlotConfig dataset;           ///< options of [data] with those of the split on top
  std::int64_t batch_size = 0;  ///< samples an optimizer step (train) or an evaluation batch
  std::int64_t micro_batch_size = 0;
  std::int64_t accumulation = 1;  ///< micro-batches a step: batch_size = micro_batch_size x accumulation
  bool shuffle = false;
  bool drop_last = false;
};

struct GradClip {
  enum class Type : std::uint8_t { norm, value } type = Type::norm;
  double max = 1.0;
};

struct EarlyStopping {
  std::string metric;  ///< "val/loss"
  bool maximize = false;
  std::int64_t patience = 0;  ///< evaluations without improvement
  double min_delta = 0.0;
};

/// What takes over from the plugin that is replaced.
enum class Carry : std::uint8_t {
  state,    ///< its state: all of it by the same plugin, else what has the same name and shape
  fresh,    ///< nothing
  restart,  ///< of a schedule: the curve begins anew over the rest of the run
  splice,   ///< of a schedule: the curve is scaled such that the factor does not jump
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
  // [run]
  std::string name;
  std::uint64_t seed = 0;
  std::string device;  ///< "cpu" or "cuda:N"
  Deterministic deterministic = Deterministic::off;
  std::string output_dir;
  std::string resume;                   ///< "never", "auto", "must", or a path
  bool load_all = true;                 ///< from that path; else weights alone
  std::vector<std::string> load_match;  ///< patterns of weights; empty: all
  int intra_op_threads = 0;             ///< 0: LibTorch's choice
  int inter_op_threads = 0;

  // [data]
  SplitConfig train;
  std::optional<SplitConfig> val, test;
  SlotConfig sampler;  ///< for training; `shuffle = true` makes it "random", else "sequential"
  int workers = 0;     ///< loader threads; 0: on the loop thread
  int prefetch = 2;    ///< batches ready ahead, per worker

  // other slots
  SlotConfig model, loss, optimizer, schedule, checkpoint;
  std::optional<SlotConfig> dropout;
  std::optional<SlotConfig> recorder;  ///< where there are rules, too
  std::vector<SlotConfig> metrics, rules, hooks, sinks;

  // [trainer]
  Duration max_duration;
  std::optional<double> max_wall_seconds;
  std::optional<Duration> eval_interval;  ///< without one: evaluated at the end only
  Precision precision = Precision::fp32;
  std::optional<GradClip> grad_clip;
  std::optional<EarlyStopping> early_stopping;

  std::vector<PlannedSwap> swaps;  ///< [[swap]]
  GuardConfig guard;

  // [logging]
  Duration log_interval{50, Duration::Unit::steps};

  /// Every slot in config order, which is the order of last resort of their hooks: model, dropout, loss,
  /// metrics, data, sampler, optimizer, schedule, checkpoint, rules, recorder, hooks, sinks.
  std::vector<const SlotConfig*> slots() const;

  Table resolved;  ///< the whole file, defaults filled in: what `config show` prints and the run directory
                   ///< keeps
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
