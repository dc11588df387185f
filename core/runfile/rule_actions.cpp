#include "core/runfile/rule_actions.hpp"

#include <optional>
#include <string>
#include <vector>

#include <trainyard/error.hpp>

#include "core/runfile/at_path.hpp"
#include "core/runfile/live_config.hpp"
#include "core/runfile/swap.hpp"

namespace trainyard::config {
namespace {

/// Gives values that were parsed from a text of the file the place of that text.
void place(Table& table, const Origin& at) {
  for (Table::Entry& entry : table.entries()) {
    if (auto* inner = entry.value.get_if<Table>()) place(*inner, at);
    const auto& file = entry.value.origin.file;
    if (file == at.file || (file && at.file && *file == *at.file)) continue;
    entry.value.origin = at;
    entry.value.key_origin = at;
  }
}

/// Returns the options `slot`, `type` and `set`; nothing, with a finding, if one of `set` is no assignment.
std::optional<SwapRequest> request_of(const Table& swap, const std::string& name, Findings& findings) {
  SwapRequest request{.slot = *at_path<std::string>(swap, "slot"), .type = {}, .options = {}};
  if (const auto* type = at_path<std::string>(swap, "type")) request.type = *type;
  const auto* assignments = at_path<Array>(swap, "set");
  if (assignments == nullptr) return request;
  for (const Value& assignment : *assignments) {
    try {
      assign(request.options, assignment.as<std::string>());
    } catch (const ConfigError& error) {
      findings.error("E107", assignment.origin, name + ".set: " + error.what(), "set = [\"lr=1e-4\"]");
      return std::nullopt;
    }
    place(request.options, assignment.origin);
  }
  return request;
}

/// Resolves the run with the swap made in it.
Resolution after(const Table& run, const SwapRequest& request, const plugins::Registry& registry,
                 const Origin& at = {}) {
  return live_config(with_swaps(run, {request}, registry, at), registry);
}

/// Returns the run as it begins, and as each planned swap leaves it.
std::vector<Table> stages(const RunConfig& config, const Table& begins, const plugins::Registry& registry) {
  std::vector<Table> all = {begins};
  for (const PlannedSwap& swap : config.swaps)
    if (const Resolution then = after(all.back(), swap.request, registry); then.config)
      all.push_back(then.config->resolved);
  return all;
}

/// Checks that a rule's swap fits one of the stages. `swap` is the option, already checked by itself.
void check_swap(const std::string& name, const Value& swap, const std::vector<Table>& stages,
                const plugins::Registry& registry, Findings& findings) {
  const auto& table = swap.as<Table>();
  const std::optional<SwapRequest> request = request_of(table, name, findings);
  if (!request) return;
  std::vector<Findings> found;
  for (const Table& stage : stages) {
    found.push_back(after(stage, *request, registry, table.find("slot")->origin).findings);
    if (!found.back().failed()) return;
  }
  const Origin& here = (table.contains("type") ? *table.find("type") : swap).origin;
  for (const Finding& each : found.front().list())
    if (each.severity == Finding::Severity::error)
      findings.error(each.code, each.at.line > 0 ? each.at : here, name + ": " + each.message, each.hint);
}

}  // namespace

void check_rule_actions(const RunConfig& config, const Table& begins, const plugins::Registry& registry,
                        Findings& findings) {
  for (const SlotConfig& rule : config.of_kind("rule")) {
    const auto* action = at_path<std::string>(rule.options, "action");
    if (action == nullptr || *action != "swap") continue;
    if (const Value* swap = rule.options.find("swap"))
      check_swap(rule.slot + ".swap", *swap, stages(config, begins, registry), registry, findings);
    else
      findings.error("E108", rule.options.find("action")->origin,
                     rule.slot + ": action = \"swap\" needs `swap`, which says what is swapped",
                     "swap = { slot = \"optimizer\", type = \"adamw\", set = [\"lr=1e-4\"] }");
  }
}

}  // namespace trainyard::config
