// A slot and who fills it: the loop calls the one within the guard of the other, and looks nothing up.
#pragma once

#include "core/runfile/run_config.hpp"

namespace trainyard::train {

template <class Interface>
struct Filled {
  const config::SlotConfig* slot = nullptr;
  Interface* plugin = nullptr;  ///< or what it made for the run: a network, a curve, a loader
};

}  // namespace trainyard::train
