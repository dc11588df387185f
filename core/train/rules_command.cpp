#include "core/train/rules_command.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <trainyard/rule_set.hpp>
#include <trainyard/trial_files.hpp>

#include "core/train/guarded_plugins.hpp"
#include "core/train/run.hpp"

namespace trainyard::train {
namespace {

nlohmann::ordered_json json_of(const Verdict& verdict) {
  nlohmann::ordered_json evidence = nlohmann::ordered_json::object();
  for (const auto& [name, value] : verdict.finding.evidence) evidence[name] = value;
  return {{"rule", verdict.rule.id},
          {"mode", mode_names[static_cast<std::size_t>(verdict.mode)]},
          {"step", verdict.mode_step},
          {"message", verdict.finding.message},
          {"tensors", verdict.finding.tensors},
          {"evidence", std::move(evidence)}};
}

}  // namespace

int rules_command(const config::RunConfig& config, const plugins::Registry& registry,
                  const std::string& trial, bool json) {
  if (config.rules.empty())
    throw ConfigError("the run file has no [[rules]] to look with; add some, or name another with --config");
  Run run(config, registry);
  std::vector<NamedRule> rules;
  for (ActivePlugin& plugin : run.plugins())
    if (plugin.slot().kind == Rule::kind.name) rules.push_back(named_rule(plugin));

  TrialReader reader(trial);
  RuleSet set(reader.collections(), [](const std::string& id, const std::string& message) {
    std::fprintf(stderr, "%s: %s\n", id.c_str(), message.c_str());
  });
  set.attach(rules, run.scale());
  std::vector<Verdict> verdicts;
  reader.refresh();
  const std::vector<std::shared_ptr<const StepRecord>> records = reader.take();
  for (const auto& record : records) std::ranges::move(set.add(record), std::back_inserter(verdicts));
  if (json) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const Verdict& verdict : verdicts) all.push_back(json_of(verdict));
    const nlohmann::ordered_json report = {{"records", records.size()},
                                           {"rules", rules.size()},
                                           {"errors", set.errors()},
                                           {"findings", std::move(all)}};
    std::printf("%s\n", report.dump(2).c_str());
  } else {
    for (const Verdict& verdict : verdicts)
      std::printf("%s step %lld  %s: %s\n",
                  std::string(mode_names[static_cast<std::size_t>(verdict.mode)]).c_str(),
                  static_cast<long long>(verdict.mode_step), verdict.rule.id.c_str(),
                  verdict.finding.message.c_str());
    std::printf("%zu findings of %zu rules in %zu records; %lld evaluations failed\n", verdicts.size(),
                rules.size(), records.size(), static_cast<long long>(set.errors()));
  }
  return static_cast<int>(verdicts.empty() ? ExitCode::done : ExitCode::numeric);
}

}  // namespace trainyard::train
