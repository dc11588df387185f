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

  /// Data about one plugin of the layer.
  struct Part {
    std::size_t place;  ///< index among the plugins and the slots of the run
    config::Carry carry = config::Carry::state;
    /// State that the plugin made for itself: kept until the swap is freed, though other state replaces it.
    State own;
  };

  /// Frees what nobody asks for once `later` has been prepared: plans are long, and models are large.
  void free_replaced_by(PreparedSwap& later) {
    const Opened& made = later.layer_.made;
    layer_.made.splits.clear();
    if (made.curve) layer_.made.curve.reset();
    if (made.network) layer_.made.network.reset();
    if (made.dropout) layer_.made.dropout.reset();
    for (std::size_t i = parts_.size(); i-- > 0;) {
      if (later.layer_.own(layer_.plugins[i].slot().slot) == nullptr) continue;
      layer_.plugins.erase(layer_.plugins.begin() + static_cast<std::ptrdiff_t>(i));
      parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  std::string text_;
  config::RunConfig config_;  ///< of the run with the swap
  std::string config_text_;
  Layer layer_;              ///< on top of the run, or of an uncommitted swap that it follows
  std::vector<Part> parts_;  ///< one per plugin; data and model bring those that depend on them
  events::Bus::Table table_;
};

}  // namespace trainyard::train
