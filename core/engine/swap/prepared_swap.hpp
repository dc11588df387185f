// Swaps that were made ready together beside the run, and, once committed, what they replaced.
#pragma once

#include <string>
#include <vector>

#include "core/engine/events/bus.hpp"
#include "core/engine/train/layer.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

class PreparedSwap {
 public:
  /// "schedule: cosine 1.0.0, generation 2", as prepared; of several, one after the other.
  const std::string& text() const { return text_; }

 private:
  friend class Swaps;

  /// What there is to a plugin of the layer besides.
  struct Part {
    std::size_t place;  ///< among the plugins and the slots of the run
    config::Carry carry = config::Carry::state;
    /// What the plugin made for itself: it is freed with the swap, not where other state takes its place.
    State own;
  };

  /// Frees what nobody asks for any more once `later` has followed: plans are long, and models are large.
  void free_replaced_by(PreparedSwap& later) {
    const Made& made = later.layer_.made;
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
  Layer layer_;              ///< over the run as it is, or over a swap that it follows, uncommitted
  std::vector<Part> parts_;  ///< one a plugin; data and model bring those along that depend on them
  events::Bus::Table table_;
};

}  // namespace trainyard::train
