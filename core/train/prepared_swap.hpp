// A swap that was made ready beside the run, and, once committed, what it replaced.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/train/run.hpp"

namespace trainyard::train {

class PreparedSwap {
 public:
  const config::SwapRequest& request() const { return request_; }
  /// "schedule: cosine 1.0.0, generation 2", as prepared.
  const std::string& text() const { return text_; }

 private:
  friend class Run;

  /// The other plugin of a slot, its configuration, and the place in the run that it takes.
  struct Part {
    ActivePlugin* place;
    config::SlotConfig* slot;
    ActivePlugin plugin;
    config::SlotConfig config;
    /// What the plugin made for itself: it is freed with the swap, not where other state takes its place.
    State own;
  };

  config::SwapRequest request_;
  std::string text_;
  config::RunConfig config_;  ///< of the run with the swap
  std::vector<Part> parts_;   ///< one; data and model bring those along that depend on them
  events::Bus::Table table_;
  // What belongs to the parts:
  std::unique_ptr<Network> network_;
  std::unique_ptr<Dropout> dropout_;
  std::map<std::string, Run::Split> splits_;
  std::optional<ScheduleCurve> curve_;
  CurvePlace curve_place_;
};

}  // namespace trainyard::train
