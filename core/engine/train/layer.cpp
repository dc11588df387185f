#include "core/engine/train/layer.hpp"

#include <trainyard/error.hpp>

namespace trainyard::train {

ActivePlugin* Layer::own(std::string_view slot) {
  for (ActivePlugin& plugin : plugins)
    if (plugin.slot().slot == slot) return &plugin;
  return nullptr;
}

ActivePlugin& Layer::plugin(std::string_view slot) {
  for (Layer* layer = this; layer != nullptr; layer = layer->below)
    if (ActivePlugin* found = layer->own(slot)) return *found;
  throw PluginError("[" + std::string(slot) + "] was not loaded");
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
