// Swaps prepared together beside the run; once committed, the plugins that they replaced.
#pragma once

#include <string>
#include <vector>

#include "core/engine/events/bus.hpp"
#include "core/engine/train/layer.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

class PreparedSwap {
 public:
  /// Returns "schedule: cosine 1.0.0, generation 2", as prepared; several are joined with "; ".
  const std::string& text() const { return text_; }

 private:
  friend class Swaps;

  /// A slot in which a plugin comes, goes, or takes over.
  struct Part {
    std::string address;  ///< SlotConfig::address
    config::Carry carry = config::Carry::state;
    bool added = false;  ///< nothing was in the slot
  };

  /// Frees what nobody asks for once `later` has been prepared: plans are long, and models are large.
  void free_replaced_by(PreparedSwap& later) {
    const Opened& made = later.layer_.made;
    layer_.made.splits.clear();
    if (made.curve) layer_.made.curve.reset();
    if (made.network) layer_.made.network.reset();
    if (made.dropout) layer_.made.dropout.reset();
    layer_.plugins.remove_if(
        [&](const ActivePlugin& each) { return later.layer_.own(each.slot().address()) != nullptr; });
  }

  std::string text_;
  config::RunConfig config_;  ///< of the run with the swap
  std::string config_text_;
  Layer layer_;              ///< on top of the run, or of an uncommitted swap that it follows
  std::vector<Part> parts_;  ///< data and model bring plugins that depend on them
  /// States that plugins made for themselves: kept until the swap is freed, though others replace them.
  std::vector<State> own_states_;
  events::Bus::Table table_;
};

}  // namespace trainyard::train
