// State that a plugin keeps in a form of its own, such as moments in 8 bits, and that others of its kind have in plain
// tensors. A checkpoint holds the plugin's own form; a swap that brings another type or other options hands over the plain one.
#pragma once

#include <trainyard/contract.hpp>
#include <trainyard/state.hpp>

TRAINYARD_CONTRACT("mixins/plain_state.hpp");

namespace trainyard {

/// A plugin implements it; the host finds it by dynamic_cast. Loop thread, at a safe point.
class PlainState {
 public:
  virtual ~PlainState() = default;

  /// Writes the state under the names, in the shapes and with the types that others of the kind have.
  virtual void save_plain(StateWriter& state) const = 0;

  /// Takes a state that save_plain() wrote, or whose tensors another plugin filled in; throws as Plugin::load() does.
  virtual void load_plain(const StateReader& state) = 0;
};

}  // namespace trainyard
