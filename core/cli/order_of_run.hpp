// The hook order of a run file, from manifests alone.
#pragma once

#include <string>
#include <vector>

#include "core/plugins/order.hpp"
#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::cli {

struct OrderOfRun {
  std::vector<events::Participant> participants;
  events::Order order;

  /// Per event: the plugins in order, each with its phase, what it writes, and why it stands there.
  std::string text() const;
};

/// `registry` and `config` outlive the result.
OrderOfRun order_of(const config::RunConfig& config, const plugins::Registry& registry);

}  // namespace trainyard::cli
