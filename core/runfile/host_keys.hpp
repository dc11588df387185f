// The host's own tables of a run file, each a struct. The meaning of a key, its bounds, units and class on
// resume are stated only in `describe` (host_keys.cpp); `trainyard config schema` prints them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/duration.hpp>

#include "core/runfile/keys.hpp"

namespace trainyard::config {

/// Keys at the top of the file, outside its tables
struct FileKeys {
  int schema = 1;
  std::vector<std::string> extends;
  static void describe(Keys<FileKeys>& keys);
};

/// An entry of a list of plugins
struct EntryKeys {
  std::string id;
  static void describe(Keys<EntryKeys>& keys);
};

/// [run]
struct RunKeys {
  enum class Deterministic : std::uint8_t { off, warn, strict };
  enum class Load : std::uint8_t { all, weights };

  std::string name;
  std::uint64_t seed = 0;
  std::string device = "cpu";  ///< "cpu", "cuda:N", or "cuda" of several ranks
  Deterministic deterministic = Deterministic::off;
  std::string output_dir = "runs/${run.name}";
  std::string resume = "never";         ///< "never", "auto", "must", or a path
  Load load = Load::all;                ///< state to load from that path
  std::vector<std::string> load_match;  ///< patterns of weights to load; empty: all
  std::optional<std::string> data;
  static void describe(Keys<RunKeys>& keys);
};

/// [run.threads]
struct ThreadKeys {
  int intra_op = 0;  ///< 0: LibTorch's choice
  int inter_op = 0;
  bool flush_denormals = true;
  static void describe(Keys<ThreadKeys>& keys);
};

/// [plugins]
struct PluginKeys {
  std::vector<std::string> paths;
  static void describe(Keys<PluginKeys>& keys);
};

/// [data], beside the options of the dataset
struct DataKeys {
  int workers = 0;   ///< loader threads; 0: on the loop thread
  int prefetch = 2;  ///< batches ready ahead, per worker
  static void describe(Keys<DataKeys>& keys);
};

/// [data.train], beside the options of the dataset
struct BatchKeys {
  std::int64_t batch_size = 0;  ///< samples per optimizer step (train) or per evaluation batch
  std::int64_t global_batch_size = 0;
  std::int64_t micro_batch_size = 0;
  std::int64_t accumulation = 1;  ///< micro-batches per step: batch_size = micro_batch_size x accumulation
  bool shuffle = false;
  bool drop_last = false;
  std::string take;  ///< take.hpp; empty: all samples
  static void describe(Keys<BatchKeys>& keys);
};

/// [data.val], [data.test], beside the options of the dataset
struct EvaluationKeys {
  std::int64_t batch_size = 0;
  std::string take;
  static void describe(Keys<EvaluationKeys>& keys);
};

/// [trainer]
struct TrainerKeys {
  enum class Precision : std::uint8_t { fp32, bf16_mixed, fp16_mixed, fp64 };

  Duration max_duration;
  std::optional<Duration> max_wall_time;
  std::optional<Duration> eval_interval;  ///< without one: only an evaluation pass at the end
  Precision precision = Precision::fp32;
  bool restore_best = false;  ///< the run ends with the weights of its best checkpoint
  static void describe(Keys<TrainerKeys>& keys);
};

/// [trainer.grad_clip]
struct GradClip {
  enum class Type : std::uint8_t { norm, value };

  Type type = Type::norm;
  double max = 1.0;
  static void describe(Keys<GradClip>& keys);
};

/// [distributed]: how several ranks train together
struct DistributedKeys {
  enum class Backend : std::uint8_t { gloo };

  std::int64_t ranks = 1;  ///< number of ranks that the batch sizes are written for
  Backend backend = Backend::gloo;
  double bucket_cap_mb = 25.0;
  std::int64_t bucket_bytes() const { return static_cast<std::int64_t>(bucket_cap_mb * (1 << 20)); }
  Duration timeout{300, Duration::Unit::seconds};
  std::vector<std::int64_t> shares;  ///< of the ranks in a batch, in proportion; empty: all the same
  static void describe(Keys<DistributedKeys>& keys);
};

/// [guard]: how the host treats plugins that misbehave
struct GuardKeys {
  /// `abort_late` warns at once, and ends the run after 30 times the deadline, or when a signal has come.
  enum class Overdue : std::uint8_t { warn, abort_late, abort };
  /// `disable` undoes the write and goes on without the plugin, `rollback` goes back to the last checkpoint.
  enum class Nan : std::uint8_t { off, abort, disable, rollback };

  Duration deadline{60, Duration::Unit::seconds};  ///< for one call into a plugin; 0: none
  Overdue on_deadline = Overdue::abort_late;
  Nan nan = Nan::abort;  ///< action when a hook wrote a value that is not finite
  /// Interval at which the host looks for undeclared writes; 0: never.
  Duration look_for_writes{256, Duration::Unit::steps};
  bool strict_state = false;
  static void describe(Keys<GuardKeys>& keys);
};

/// [logging]
struct LoggingKeys {
  Duration interval{50, Duration::Unit::steps};
  static void describe(Keys<LoggingKeys>& keys);
};

/// An entry of [[hooks]], beside the options of the plugin; overrides its manifest
struct HookKeys {
  enum class OnError : std::uint8_t { abort, disable };

  std::string every;                       ///< cadence of the hooks that have one; empty: their own
  std::optional<int> priority;             ///< priority of all its hooks
  std::vector<std::string> before, after;  ///< ids or plugin names, added to the manifest's
  OnError on_error = OnError::abort;       ///< whether the run stops or goes on without it when it throws
  static void describe(Keys<HookKeys>& keys);
};

/// The state that a swap carries from the replaced plugin to the new one.
enum class Carry : std::uint8_t {
  state,    ///< its state: all of it for the same plugin, else entries with the same name and shape
  fresh,    ///< no state
  restart,  ///< for a schedule: the curve begins anew over the rest of the run
  splice,   ///< for a schedule: the curve is scaled such that the factor does not jump
};

/// An entry of [[swap]], beside the options of the plugin
struct SwapKeys {
  Duration at;
  std::string slot;
  std::string type;
  std::string change = "replace";
  Carry carry = Carry::state;
  Duration watch{5, Duration::Unit::steps};
  static void describe(Keys<SwapKeys>& keys);
};

}  // namespace trainyard::config

namespace trainyard {

template <>
struct Words<config::RunKeys::Deterministic> {
  static constexpr std::string_view words[] = {"off", "warn", "strict"};
};
template <>
struct Words<config::RunKeys::Load> {
  static constexpr std::string_view words[] = {"all", "weights"};
};
template <>
struct Words<config::TrainerKeys::Precision> {
  static constexpr std::string_view words[] = {"fp32", "bf16-mixed", "fp16-mixed", "fp64"};
};
template <>
struct Words<config::GradClip::Type> {
  static constexpr std::string_view words[] = {"norm", "value"};
};
template <>
struct Words<config::DistributedKeys::Backend> {
  static constexpr std::string_view words[] = {"gloo"};
};
template <>
struct Words<config::GuardKeys::Overdue> {
  static constexpr std::string_view words[] = {"warn", "abort_late", "abort"};
};
template <>
struct Words<config::GuardKeys::Nan> {
  static constexpr std::string_view words[] = {"off", "abort", "disable", "rollback"};
};
template <>
struct Words<config::HookKeys::OnError> {
  static constexpr std::string_view words[] = {"abort", "disable"};
};
template <>
struct Words<config::Carry> {
  static constexpr std::string_view words[] = {"state", "fresh", "restart", "splice"};
};

}  // namespace trainyard
