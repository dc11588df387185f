// Orders the hooks of every event (events.md, rules 1 to 3): a pure function of the manifests and the run
// file, never of load order. Torch-free, so that `plan` prints the order that the bus will use.
#pragma once

#include <array>
#include <string>
#include <vector>

#include <trainyard/manifest_data.hpp>

namespace trainyard::events {

/// A plugin of the run, in config order.
struct Participant {
  std::string id;      ///< unique in the run: "ema", "sinks/console"
  std::string plugin;  ///< the plugin's name, to which constraints refer
  std::vector<HookSpec> hooks;
  bool in_order_of_file = false;  ///< against others of which the same is true: a declared order
};

/// One hook in its place, with the reason that puts it behind the one before.
struct Place {
  std::size_t participant = 0;
  std::size_t hook = 0;  ///< index into its hooks
  std::string reason;    ///< empty for the first hook of an event
};

struct OrderProblem {
  /// "E318" a cycle, "E319" two unordered writers, "E320" a region that may not be written there, "E321" an
  /// event that does not fire in this run.
  std::string code;
  std::string message;
  std::string hint;
};

struct Order {
  std::array<std::vector<Place>, event_count> places;
  std::vector<OrderProblem> problems;  ///< if empty, `places` is valid

  /// Returns a digest of the order, which is the same on all ranks of a run (events.md, rule 9).
  std::string digest(const std::vector<Participant>& participants) const;
};

Order make_order(const std::vector<Participant>& participants, int ranks = 1);

/// Lists regions: "model, grads".
std::string text(Regions regions);

/// Returns the opening event of a closing one; any other event itself.
Event opening_of(Event event);

}  // namespace trainyard::events
