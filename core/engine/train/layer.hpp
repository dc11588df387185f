// The plugins of a run and what they made for it; and those that a swap brings, laid over them.
#pragma once

#include <deque>
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
#include <trainyard/sampler.hpp>
#include <trainyard/schedule.hpp>

#include "core/engine/train/active_plugin.hpp"
#include "core/engine/train/data_loader.hpp"
#include "core/engine/train/view.hpp"

namespace trainyard::train {

struct Split {
  const Dataset* dataset = nullptr;
  std::optional<View> view;          ///< none: all of its samples
  std::unique_ptr<Dataset> guarded;  ///< the same, within the guard of its slot
  std::unique_ptr<Sampler> sampler;  ///< null: the dataset's own order
  std::unique_ptr<data::Loader> loader;

  std::int64_t samples() const { return view ? view->size() : dataset->size(); }
};

/// What plugins made; of a swap, only what is another with it.
struct Made {
  std::map<std::string, Split> splits;
  std::shared_ptr<const DropoutPlan> dropout;  ///< within the guard of its slot
  std::unique_ptr<Network> network;
  std::unique_ptr<Compressor> compressor;  ///< within the guard of its slot
  std::optional<ScheduleCurve> curve;
  CurvePlace curve_place;
};

struct Layer {
  Layer* below = nullptr;            ///< null: this is the run's
  std::deque<ActivePlugin> plugins;  ///< a deque: the bus and the loop point into it
  Made made;

  /// Of this layer; null where it has none in the slot.
  ActivePlugin* own(std::string_view slot);
  /// Who fills a slot, here or below.
  ActivePlugin& plugin(std::string_view slot);
  Network& network();
  std::pair<const ScheduleCurve*, CurvePlace> curve() const;
};

}  // namespace trainyard::train
