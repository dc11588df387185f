// A checked run file for the engine: the host's own tables as structs, every slot as the name of a plugin and
// the table of its options. Torch-free. Made by resolve() (resolve.hpp), which has reported everything that
// is wrong before this exists.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <string>
#include <string_view>
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
  std::string id;    ///< for an entry of a list: its `id`, else its type
  /// Options of the plugin, checked against its manifest; without `type`, `id` and the host's keys.
  Table options;
  Origin origin;  ///< place of the table
  HookKeys hook;  ///< set for an entry of [[hooks]]

  /// Returns the name of the slot outside the file: "optimizer", and with its id in a list: "hooks.ema".
  std::string address() const {
    const std::size_t bracket = slot.find('[');
    return bracket == std::string::npos ? slot : slot.substr(0, bracket) + "." + id;
  }
};

/// A request for another plugin, or other options, in a slot of a running training.
struct SwapRequest {
  std::string slot;  ///< SlotConfig::address
  std::string type;  ///< empty: the present one
  Table options;     ///< only the options that are given
  Carry carry = Carry::state;
  std::string change = "replace";  ///< the plugin of the slot; or "add" or "remove" an entry of a list
  std::string watch = "5ba";  ///< the watch: length during which a rollback to the old plugin is possible
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
  GuardKeys guard;
  DistributedKeys distributed;
  LoggingKeys logging;
  std::vector<PlannedSwap> swaps;  ///< [[swap]]

  BatchKeys train;                     ///< [data.train]; its dataset is in the slot "data.train"
  std::optional<BatchKeys> val, test;  ///< splits that the file has; a micro-batch is the batch

  /// Returns the batch keys of "train", "val" or "test"; null where the run has no such split.
  const BatchKeys* split(std::string_view name) const {
    if (name == "train") return &train;
    const std::optional<BatchKeys>& keys = name == "val" ? val : test;
    return keys ? &*keys : nullptr;
  }

  /// Every slot in config order, the last tie-breaker of hook order: by kind (kinds.hpp), and within a kind
  /// as in the file.
  std::vector<SlotConfig> slots;

  /// Finds a slot by SlotConfig::slot; null where the run has none of that name.
  const SlotConfig* find(std::string_view slot) const {
    const auto found = std::ranges::find(slots, slot, &SlotConfig::slot);
    return found == slots.end() ? nullptr : &*found;
  }
  /// Returns a slot that is known to exist.
  const SlotConfig& at(std::string_view slot) const {
    if (const SlotConfig* found = find(slot)) return *found;
    throw std::out_of_range("the run has no slot " + std::string(slot));
  }
  auto of_kind(std::string_view kind) const {
    return slots | std::views::filter([kind](const SlotConfig& slot) { return slot.kind == kind; });
  }

  /// The whole file with defaults filled in: what `config show` prints and the run directory keeps.
  Table resolved;
};

}  // namespace trainyard::config
