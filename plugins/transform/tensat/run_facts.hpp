// What a run file says of how passes are computed.
#pragma once

#include <string>

#include <trainyard/value.hpp>

#include "timing.hpp"

namespace tensat {

struct RunFacts {
  Way way;
  std::string
      obstacle;  ///< why times of this machine's processor in single precision say nothing of the run; empty: they do
};

/// Reads a run file with its defaults.
RunFacts facts_of(const trainyard::Table& run, bool training);

}  // namespace tensat
