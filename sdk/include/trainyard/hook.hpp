// hook/1: a plugin that fills no slot and only subscribes to events (`[[hooks]]`).
#pragma once

#include <trainyard/context.hpp>
#include <trainyard/contract.hpp>
#include <trainyard/plugin.hpp>

TRAINYARD_CONTRACT("hook.hpp");

namespace trainyard {

class Hook : public Plugin {
 public:
  static constexpr Kind kind{"hook", 1};
};

}  // namespace trainyard
