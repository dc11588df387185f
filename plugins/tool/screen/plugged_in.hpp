// Detectors that are plugins, as a pool has detectors.
#pragma once

#include <string>
#include <vector>

#include <trainyard/detector.hpp>
#include <trainyard/host.hpp>

#include "pool.hpp"

namespace screen {

/// Makes them all. Throws Error.
std::vector<Given> made_detectors(trainyard::Host& host,
                                  const trainyard::PluginList<trainyard::Detector>& list);

}  // namespace screen
