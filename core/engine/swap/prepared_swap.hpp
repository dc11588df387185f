// Swaps that were made ready together beside the run, and, once committed, what they replaced.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/train/run.hpp"

namespace trainyard::train {

class PreparedSwap {
 public:
  /// "schedule: cosine 1.0.0, generation 2", as prepared; of several, one after the other.
  const std::string& text() const { return text_; }

 private:
  friend class Run;

  /// The other plugin of a slot, its configuration, and the place in the run that it takes.
  struct Part {
    ActivePlugin* place;
    config::SlotConfig* slot;
    ActivePlugin plugin;
    config::SlotConfig config;
    config::Carry carry = config::Carry::state;
    /// What the plugin made for itself: it is freed with the swap, not where other state takes its place.
    State own;
  };

  /// That of a slot, where the swap replaces it.
  ActivePlugin* find(const std::string& slot) {
    for (Part& part : parts_)
      if (part.config.slot == slot) return &part.plugin;
    return nullptr;
  }

  /// Frees what nobody asks for any more once `later` has followed: plans are long, and models are large.
  void free_replaced_by(PreparedSwap& later) {
    splits_.clear();
    if (later.curve_) curve_.reset();
    if (later.network_) network_.reset();
    if (later.dropout_) dropout_.reset();
    std::erase_if(parts_, [&](const Part& part) { return later.find(part.config.slot) != nullptr; });
  }

  PreparedSwap* after_ = nullptr;  ///< the swap that it follows, uncommitted; null: the run as it is
  std::string text_;
  config::RunConfig config_;  ///< of the run with the swap
  std::string config_text_;
  std::vector<Part> parts_;  ///< data and model bring those along that depend on them
  events::Bus::Table table_;
  // What belongs to the parts:
  std::unique_ptr<Network> network_;
  std::shared_ptr<const DropoutPlan> dropout_;
  std::map<std::string, Run::Split> splits_;
  std::optional<ScheduleCurve> curve_;
  CurvePlace curve_place_;
};

}  // namespace trainyard::train
