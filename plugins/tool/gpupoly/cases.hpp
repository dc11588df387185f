// What a verifier's bounds say of cases: conditions on the output over boxes of inputs.
#pragma once

#include <string>
#include <vector>

#include <trainyard/network.hpp>

#include "bounds.hpp"
#include "vnnlib.hpp"

namespace gpupoly {

/// A proof of a program, soundness 3 and up, is of one in single precision, as a processor runs it. Throws
/// ConfigError where the network is another.
void require_single(const trainyard::Network& network, int soundness);

/// What a proof of this level holds of, in words: for a report.
std::string holds_of(const Layers& layers, int soundness);

/// Above 0 where none of these cases, all of one box, can be: the least over them of the best atom's bound. Throws
/// Stopped, as the verifier.
double margin(Verifier& verifier, const std::vector<Case>& cases);

}  // namespace gpupoly
