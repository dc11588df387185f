#include "plan.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <trainyard/error.hpp>

namespace trial {
namespace {

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
/// Combinations of who is due; beyond them they are made anew.
constexpr std::size_t most_plans = 256;

}  // namespace

std::string Sighting::tell_missing() {
  static constexpr const char* names[] = {
      "", "weights", "gradients", "losses", "outputs of the network", "tensors of its nodes"};
  const unsigned missing = wanted & ~seen & ~told;
  if (missing == 0) return {};
  told |= wanted;
  if ((missing & bit(Shown::anything)) != 0) return who + " found none of the tensors that it watches";
  std::string text;
  for (std::size_t kind = 1; kind < std::size(names); ++kind)
    if ((missing >> kind & 1U) != 0) text += (text.empty() ? "" : " and no ") + std::string(names[kind]);
  return who + " found no " + text + " in training, which it watches";
}

bool Plan::for_rules() const {
  return std::any_of(sources_.begin(), sources_.end(),
                     [](const Source& source) { return source.collection == nullptr; });
}

const Want& Plan::want(const std::string& name) {
  const auto known = known_.find(name);
  return known != known_.end() ? known->second : known_.emplace(name, make(name)).first->second;
}

/// Nobody is told of a record of an evaluation, whose tensors are its own, or of who looks at others as well.
std::vector<std::string> Plan::missed() const {
  std::vector<std::string> missed;
  for (const Source& source : sources_) {
    source.sighting->wanted |= bit(Shown::anything);
    if (!source.sighting->training) continue;
    if (std::string text = source.sighting->tell_missing(); !text.empty()) missed.push_back(std::move(text));
  }
  return missed;
}

Want Plan::make(const std::string& name) const {
  Want want;
  for (const Source& source : sources_) {
    bool wanted = false;
    if (source.collection != nullptr) {
      const SavedCollection& collection = *source.collection;
      if (!trial_.belongs(name, collection.name)) continue;
      wanted = true;
      want.stored.value |= collection.values;
      want.histogram |= collection.histogram;
      want.value |= collection.values || collection.histogram;
      want.statistics |= !collection.reductions.empty();
      for (const std::string& reduction : collection.reductions) {
        auto& all = want.stored.reductions;
        if (std::find(all.begin(), all.end(), reduction) == all.end()) all.push_back(reduction);
      }
    }
    for (const Watch& watch : source.watches) {
      if (!trial_.belongs(name, watch.tensors)) continue;
      wanted = true;
      want.statistics = true;
      want.value |= watch.values;
    }
    if (wanted) want.by.push_back(source.sighting);
  }
  return want;
}

void Agenda::set_rules(const std::vector<NamedRule>& rules, const RunScale& scale) {
  std::vector<RuleCadence> cadences;
  std::vector<std::string> ids;
  for (const NamedRule& named : rules) {
    if (!named.rule->common.enabled) continue;
    RuleCadence cadence = cadence_of(named, scale);
    for (const Watch& watch : cadence.watches) {
      try {
        Trial(known_).belongs("", watch.tensors);
      } catch (const PluginError& error) {
        throw ConfigError("rules." + named.id + ": " + error.what());
      }
    }
    cadences.push_back(std::move(cadence));
    ids.push_back("rules." + named.id);
  }
  rules_ = std::move(cadences);
  ids_ = std::move(ids);
  for (const std::string& id : ids_) sightings_[id] = {};  // other options, perhaps; plans refer to them
  plans_.clear();
}

std::int64_t Agenda::next(std::int64_t step) const {
  std::int64_t next = never;
  for (const SavedCollection& each : saved_) next = std::min(next, each.save.next(step));
  for (const RuleCadence& each : rules_) next = std::min(next, each.next(step));
  return next;
}

std::shared_ptr<Plan> Agenda::at(Mode mode, std::int64_t step) {
  std::vector<bool> due;
  const bool train = mode == Mode::train;
  due.push_back(train);  // those of another mode want other things
  for (const SavedCollection& each : saved_) due.push_back(!train || each.save.due(step));
  for (const RuleCadence& each : rules_) due.push_back(each.due(mode, step));
  if (std::find(due.begin() + 1, due.end(), true) == due.end()) return nullptr;
  if (plans_.size() >= most_plans) plans_.clear();
  std::shared_ptr<Plan>& plan = plans_[due];
  if (plan) return plan;
  std::vector<Plan::Source> sources;
  std::size_t i = 1;
  for (const SavedCollection& each : saved_)
    if (due[i++]) sources.push_back({&each, {}, sighting("the collection " + each.name, false)});
  for (std::size_t r = 0; r < rules_.size(); ++r)
    if (due[i++])
      sources.push_back(
          {nullptr, rules_[r].watches, sighting(ids_[r], rules_[r].modes == std::vector{Mode::train})});
  return plan = std::make_shared<Plan>(std::move(sources), known_);
}

Sighting* Agenda::sighting(const std::string& who, bool training) {
  Sighting& sighting = sightings_[who];
  sighting.who = who;
  sighting.training = training;
  return &sighting;
}

std::vector<std::string> Agenda::never_seen() {
  std::vector<std::string> never;
  for (auto& [who, sighting] : sightings_)
    if (std::string text = sighting.tell_missing(); !text.empty()) never.push_back(std::move(text));
  return never;
}

bool Agenda::looks_at_machine() const {
  constexpr const char* names[] = {"system/cpu",        "system/iowait",          "system/memory",
                                   "system/gpu",        "system/gpu_memory",      "system/disk_read",
                                   "system/disk_write", "profile/step_seconds",   "profile/data",
                                   "profile/forward",   "profile/loss",           "profile/backward",
                                   "profile/optimizer", "profile/loader_workers", "profile/initialization"};
  const Trial trial(known_);
  return std::any_of(rules_.begin(), rules_.end(), [&](const RuleCadence& rule) {
    return rule.due(Mode::global, 0) &&
           std::any_of(rule.watches.begin(), rule.watches.end(), [&](const Watch& watch) {
             return std::any_of(std::begin(names), std::end(names),
                                [&](const char* name) { return trial.belongs(name, watch.tensors); });
           });
  });
}

}  // namespace trial
