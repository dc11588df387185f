// Writes the status of a run for Prometheus.
#pragma once

#include <string>

#include "core/rundir/protocol.hpp"

namespace trainyard::cli {

/// Returns Prometheus' text format, 0.0.4; metrics of the training are trainyard_metric{name="..."}.
std::string prometheus_text(const control::Status& status);

}  // namespace trainyard::cli
