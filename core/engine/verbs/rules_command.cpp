#include "core/engine/verbs/commands.hpp"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <nlohmann/json.hpp>
#include <set>
#include <trainyard/formats/trial_files.hpp>
#include <trainyard/rule_set.hpp>

#include "core/engine/train/guarded_plugins.hpp"
#include "core/engine/train/run.hpp"

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

std::string name_of(Mode mode) {
  return std::string(mode_names[static_cast<std::size_t>(mode)]);
}

/// Shows the records of a trial to one rule, and notes what the rule could not look at.
class Look {
 public:
  Look(const NamedRule& rule, const RunScale& scale, const std::vector<Collection>& collections)
      : rule_(rule),
        cadence_(cadence_of(rule, scale)),
        names_(collections),
        seen_(cadence_.watches.size()),
        set_(collections, [this](const std::string&, const std::string& message) {
          if (failure_.empty()) failure_ = message;
        }) {
    set_.attach({rule}, scale);
  }

  std::vector<Verdict> show(const std::shared_ptr<const StepRecord>& record) {
    if (std::find(cadence_.modes.begin(), cadence_.modes.end(), record->mode) == cadence_.modes.end())
      return {};
    recorded_.insert(record->mode);
    if (!cadence_.due(record->mode, record->mode_step)) return {};
    due_ = true;
    bool concerned = false;
    const Watch* lacks = nullptr;
    for (std::size_t i = 0; i < cadence_.watches.size(); ++i)
      for (const TensorRecord* tensor : names_.tensors(*record, cadence_.watches[i].tensors)) {
        concerned = true;
        seen_[i] = true;
        if (cadence_.watches[i].values && !tensor->value.defined()) lacks = &cadence_.watches[i];
      }
    if (!concerned) return {};
    ++records_;
    if (lacks == nullptr) return set_.add(record);
    ++without_values_;
    lacking_ = lacks->tensors;
    return {};
  }
  std::vector<Verdict> waited(double seconds) { return set_.waited(seconds); }

  const std::string& id() const { return rule_.id; }
  std::int64_t errors() const { return set_.errors(); }
  /// Returns true if the rule looked at any record.
  bool looked() const { return rule_.rule->common.enabled && records_ > without_values_ + errors(); }
  /// Returns what the rule could not look at, and why; empty: it looked at all that it wants.
  std::string why() const {
    const auto of = [&](std::int64_t count) {
      return "at " + std::to_string(count) + " of " + std::to_string(records_) + " records ";
    };
    if (!rule_.rule->common.enabled) return "enabled = false";
    std::vector<std::string> reasons;
    for (const Mode mode : cadence_.modes)
      if (!recorded_.contains(mode) && (mode != Mode::global || cadence_.modes.size() == 1))
        reasons.push_back("nothing was recorded of " + name_of(mode));
    if (!recorded_.empty() && !due_)
      reasons.push_back("no record is of a step at which it looks (every = \"" +
                        rule_.rule->common.every.text() + "\")");
    for (std::size_t i = 0; due_ && i < seen_.size(); ++i)
      if (!seen_[i]) reasons.push_back("no record holds a tensor \"" + cadence_.watches[i].tensors + "\"");
    if (without_values_ > 0)
      reasons.push_back(of(without_values_) + "the values of \"" + lacking_ +
                        "\" were not written (save_raw_tensor = true writes them)");
    if (errors() > 0) reasons.push_back(of(errors()) + "it failed: " + failure_);
    std::string all;
    for (const std::string& reason : reasons) all += (all.empty() ? "" : "; ") + reason;
    return all;
  }

 private:
  NamedRule rule_;
  RuleCadence cadence_;
  Trial names_;              ///< used for its matching of names
  std::set<Mode> recorded_;  ///< those of its modes that have records
  bool due_ = false;
  std::vector<bool> seen_;  ///< one per watch: a tensor was seen
  std::int64_t records_ = 0, without_values_ = 0;
  std::string lacking_, failure_;
  RuleSet set_;
};

/// Returns what fires over a trial, in the order of its records.
std::vector<Verdict> findings(const std::vector<std::shared_ptr<const StepRecord>>& records,
                              std::deque<Look>& looks) {
  std::vector<Verdict> all;
  double last = 0.0;  // as on the recorder's thread, which goes on while the training hangs
  for (const auto& record : records) {
    if (record->mode != Mode::global) {
      for (Look& look : looks)
        std::ranges::move(look.waited(record->seconds - last), std::back_inserter(all));
      last = record->seconds;
    }
    for (Look& look : looks) std::ranges::move(look.show(record), std::back_inserter(all));
  }
  return all;
}

void print(const std::vector<Verdict>& verdicts, const std::deque<Look>& looks, std::size_t records) {
  for (const Verdict& verdict : verdicts)
    std::printf("%s step %lld  %s: %s\n", name_of(verdict.mode).c_str(),
                static_cast<long long>(verdict.mode_step), verdict.rule.id.c_str(),
                verdict.finding.message.c_str());
  std::size_t unchecked = 0, in_part = 0;
  for (const Look& look : looks) {
    const std::string why = look.why();
    if (why.empty()) continue;
    ++(look.looked() ? in_part : unchecked);
    std::printf("%s  %s: %s\n", look.looked() ? "checked in part" : "not checked", look.id().c_str(),
                why.c_str());
  }
  std::printf("%zu findings of %zu rules in %zu records; %zu rules not checked, %zu in part\n",
              verdicts.size(), looks.size(), records, unchecked, in_part);
}

void print_json(const std::vector<Verdict>& verdicts, const std::deque<Look>& looks, std::size_t records) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array(), unchecked = all;
  std::int64_t errors = 0;
  for (const Verdict& verdict : verdicts) all.push_back(json_of(verdict));
  for (const Look& look : looks) {
    errors += look.errors();
    if (const std::string why = look.why(); !why.empty())
      unchecked.push_back({{"rule", look.id()}, {"in_part", look.looked()}, {"why", why}});
  }
  const nlohmann::ordered_json report = {{"records", records},
                                         {"rules", looks.size()},
                                         {"errors", errors},
                                         {"findings", std::move(all)},
                                         {"not_checked", std::move(unchecked)}};
  std::printf("%s\n", report.dump(2).c_str());
}

}  // namespace

int rules_command(const config::RunConfig& config, const plugins::Registry& registry,
                  const std::string& trial, bool json) {
  if (config.of_kind(Rule::kind.name).empty())
    throw ConfigError("the run file has no [[rules]] to look with; add some, or name another with --config");
  Run run(config, registry);
  TrialReader reader(trial);
  std::deque<Look> looks;
  for (ActivePlugin& plugin : run.plugins())
    if (plugin.slot().kind == Rule::kind.name)
      looks.emplace_back(named_rule(plugin), run.scale(), reader.collections());
  const std::vector<std::shared_ptr<const StepRecord>> records = reader.take();
  const std::vector<Verdict> verdicts = findings(records, looks);
  (json ? print_json : print)(verdicts, looks, records.size());
  if (!verdicts.empty()) return static_cast<int>(ExitCode::numeric);
  return std::ranges::all_of(looks, [](const Look& look) { return look.why().empty(); })
             ? static_cast<int>(ExitCode::done)
             : rules_not_checked;
}

}  // namespace trainyard::train
