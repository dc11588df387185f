// What a run leaves that must not depend on when and how often it was killed.
#pragma once

#include <string>

#include "core/check/remains.hpp"

namespace trainyard::contract {

/// What the host leaves, and what every sink wrote; the trial. A file that nobody can read here fails the test.
using check::difference, check::Remains;
Remains remains_of(const std::string& run_folder);

}  // namespace trainyard::contract
