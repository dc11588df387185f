// The status of a run as Prometheus reads it.
#pragma once

#include <string>

#include "core/rundir/protocol.hpp"

namespace trainyard::cli {

/// Prometheus' text format, 0.0.4: a gauge or counter a number, metrics of the training as trainyard_metric{name="..."}.
std::string prometheus_text(const control::Status& status);

}  // namespace trainyard::cli
