#include "core/runfile/resolve.hpp"

#include "core/runfile/planned_swaps.hpp"
#include "core/runfile/rule_actions.hpp"

namespace trainyard::config {

Resolution resolve(Document document, const plugins::Registry& registry) {
  const Value* const given = document.root.find("swap");
  const std::optional<Value> entries =
      given == nullptr || !document.trains ? std::nullopt : std::optional(*given);
  Resolution result = live_config(std::move(document), registry);
  if (!result.config) return result;
  RunConfig& config = *result.config;
  const Table begins = config.resolved;
  if (entries) {
    PlannedSwaps planned = plan_swaps(*entries, config, registry, result.findings);
    config.swaps = std::move(planned.swaps);
    config.resolved.set("swap", Value(std::move(planned.printed)));
  }
  check_rule_actions(config, begins, registry, result.findings);
  if (result.findings.failed()) result.config.reset();
  return result;
}

}  // namespace trainyard::config
