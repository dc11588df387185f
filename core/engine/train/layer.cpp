#include "core/engine/train/layer.hpp"

#include <trainyard/error.hpp>

namespace trainyard::train {

ActivePlugin* Layer::own(std::string_view address) {
  for (ActivePlugin& plugin : plugins)
    if (plugin.slot().address() == address) return &plugin;
  return nullptr;
}

ActivePlugin& Layer::plugin(std::string_view address) {
  for (Layer* layer = this; layer != nullptr; layer = layer->below)
    if (ActivePlugin* found = layer->own(address)) return *found;
  throw PluginError("[" + std::string(address) + "] was not loaded");
}

Network& Layer::network() {
  Layer* layer = this;
  while (!layer->made.network) layer = layer->below;
  return *layer->made.network;
}

std::pair<const ScheduleCurve*, CurvePlace> Layer::curve() const {
  const Layer* layer = this;
  while (!layer->made.curve) layer = layer->below;
  return {&*layer->made.curve, layer->made.curve_place};
}

}  // namespace trainyard::train
