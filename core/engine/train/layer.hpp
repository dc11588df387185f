// The plugins of a run and what they made for it; a swap lays a layer of its own over the run's.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <trainyard/compressor.hpp>
#include <trainyard/dataset.hpp>
#include <trainyard/dropout.hpp>
#include <trainyard/network.hpp>
#include <trainyard/schedule.hpp>

#include "core/engine/train/active_plugin.hpp"
#include "core/engine/train/data_loader.hpp"
#include "core/engine/train/view.hpp"

namespace trainyard::train {

struct Split {
  const Dataset* dataset = nullptr;
  std::optional<View> view;  ///< none: all samples of the dataset
  std::unique_ptr<data::Loader> loader;

  std::int64_t samples() const { return view ? view->size() : dataset->size(); }
};

/// The objects that plugins made; a swap's layer holds only those that the swap changes.
struct Opened {
  std::map<std::string, Split> splits;
  std::shared_ptr<const DropoutPlan> dropout;  ///< within the guard of its slot
  std::unique_ptr<Network> network;
  std::unique_ptr<Compressor> compressor;  ///< within the guard of its slot
  std::optional<ScheduleCurve> curve;
  CurvePlace curve_place;
};

struct Layer {
  Layer* below = nullptr;  ///< null: this is the run's layer
  std::list<ActivePlugin>
      plugins;  ///< a list, as the bus and the loop point into it while others come and go
  Opened made;

  /// Returns this layer's plugin at an address (SlotConfig::address); null if it has none.
  ActivePlugin* own(std::string_view address);
  /// Returns the plugin at an address, from this layer or one below.
  ActivePlugin& plugin(std::string_view address);
  Network& network();
  std::pair<const ScheduleCurve*, CurvePlace> curve() const;
};

}  // namespace trainyard::train
