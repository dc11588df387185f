#include <trainyard/rule_set.hpp>

#include <algorithm>
#include <limits>
#include <utility>

#include <trainyard/error.hpp>

namespace trainyard {
namespace {

/// A rule that throws so often in a row is not asked again.
constexpr int most_errors = 3;

}  // namespace

void Rule::save(StateWriter& state) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, scalar] : published_.scalars) state.scalar(name, scalar);
  for (const auto& [name, tensor] : published_.tensors) state.tensor(name, tensor);
}

void Rule::load(const StateReader& state) {
  const std::lock_guard lock(mutex_);
  published_ = state.state();
  loaded_ = true;
}

void Rule::settle() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(loaded_, false)) return;
  const StateReader reader(published_);
  fired_ = reader.has_scalar("fired") && reader.boolean("fired");
  if (reader.has_scalar("fired")) recall(reader);
}

void Rule::publish(bool fired) {
  State state;
  StateWriter writer(state);
  writer.scalar("fired", fired);
  remember(writer);
  const std::lock_guard lock(mutex_);
  if (loaded_) return;  // the run has gone back meanwhile
  fired_ = fired;
  published_ = std::move(state);
}

bool RuleCadence::due(Mode mode, std::int64_t mode_step) const {
  if (std::find(modes.begin(), modes.end(), mode) == modes.end()) return false;
  if (mode != Mode::train) return true;
  return mode_step >= start && (end == 0 || mode_step < end) && (mode_step - start) % every == 0;
}

std::int64_t RuleCadence::next(std::int64_t step) const {
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  if (std::find(modes.begin(), modes.end(), Mode::train) == modes.end()) return never;
  const std::int64_t behind = std::max<std::int64_t>(0, step - start);
  const std::int64_t due = start + (behind + every - 1) / every * every;
  return end == 0 || due < end ? due : never;
}

RuleCadence cadence_of(const NamedRule& named, const RunScale& scale) {
  const auto steps = [&](const char* option, const Duration& length) {
    if (const auto count = length.steps(scale)) return *count;
    throw ConfigError("rules." + named.id + "." + option + " = \"" + length.text() +
                      "\" cannot be converted to steps of this run; use ba");
  };
  const RuleCommon& common = named.rule->common;
  RuleCadence cadence{.watches = {},
                      .modes = {},
                      .every = std::max<std::int64_t>(1, steps("every", common.every)),
                      .start = steps("start", common.start),
                      .end = common.end ? steps("end", *common.end) : 0};
  named.within([&] {
    cadence.watches = named.rule->watches();
    cadence.modes = named.rule->modes();
  });
  return cadence;
}

struct RuleSet::Entry {
  NamedRule named;
  RuleCadence cadence;
  std::int64_t window = 1;
  Trial trial;
  int errors_in_row = 0;

  Entry(const NamedRule& rule, const RunScale& scale, std::vector<Collection> collections)
      : named(rule), cadence(cadence_of(rule, scale)), trial(std::move(collections)) {
    named.within([&] { window = std::max<std::int64_t>(1, named.rule->window()); });
    trial.keep(window);
  }

  bool watches_tensor(const TensorRecord& tensor, bool values) const {
    return std::any_of(cadence.watches.begin(), cadence.watches.end(), [&](const Watch& watch) {
      return (watch.values || !values) && trial.belongs(tensor.name, watch.tensors);
    });
  }

  bool concerns(const StepRecord& now) const {
    return cadence.due(now.mode, now.mode_step) &&
           std::any_of(now.tensors.begin(), now.tensors.end(),
                       [&](const TensorRecord& tensor) { return watches_tensor(tensor, false); });
  }

  /// The record without values that this rule did not ask for, where it keeps several.
  std::shared_ptr<const StepRecord> kept(const std::shared_ptr<const StepRecord>& record) const {
    const auto spare = [&](const TensorRecord& tensor) {
      return tensor.value.defined() && tensor.value.numel() > 1 && !watches_tensor(tensor, true);
    };
    if (window == 1 || std::none_of(record->tensors.begin(), record->tensors.end(), spare)) return record;
    auto slim = std::make_shared<StepRecord>(*record);
    for (TensorRecord& tensor : slim->tensors)
      if (spare(tensor)) tensor.value.reset();
    return slim;
  }
};

struct RuleSet::End {
  RuleSet& set;
  ~End() { set.end(); }
};

RuleSet::RuleSet(std::vector<Collection> collections,
                 std::function<void(const std::string&, const std::string&)> complain)
    : collections_(std::move(collections)), complain_(std::move(complain)) {}
RuleSet::~RuleSet() = default;

void RuleSet::attach(const std::vector<NamedRule>& rules, const RunScale& scale) {
  std::vector<std::shared_ptr<Entry>> fresh;
  fresh.reserve(rules.size());
  for (const NamedRule& named : rules) fresh.push_back(std::make_shared<Entry>(named, scale, collections_));
  std::unique_lock lock(mutex_);
  for (std::shared_ptr<Entry>& entry : fresh)
    for (const std::shared_ptr<Entry>& old : entries_) {
      if (old->named.id != entry->named.id) continue;
      if (old->named.rule == entry->named.rule) {
        entry = old;  // it may be at work
        break;
      }
      idle_.wait(lock, [&] { return busy_ != old.get(); });
      for (const auto& record : old->trial.records()) entry->trial.add(record);
      break;
    }
  for (const std::shared_ptr<Entry>& entry : fresh)
    if (std::find(entries_.begin(), entries_.end(), entry) == entries_.end())
      entry->named.within(
          [&] { entry->named.rule->publish(false); });  // a run that goes back to here finds a state
  entries_ = std::move(fresh);
  idle_.wait(lock, [&] {
    return busy_ == nullptr || std::any_of(entries_.begin(), entries_.end(),
                                           [&](const auto& each) { return each.get() == busy_; });
  });
}

std::vector<std::shared_ptr<RuleSet::Entry>> RuleSet::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

/// Whether the rule is still attached; it stays until `end`.
bool RuleSet::begin(Entry& entry) {
  const std::lock_guard lock(mutex_);
  const bool attached =
      std::any_of(entries_.begin(), entries_.end(), [&](const auto& each) { return each.get() == &entry; });
  if (attached) busy_ = &entry;
  return attached;
}

void RuleSet::end() {
  {
    const std::lock_guard lock(mutex_);
    busy_ = nullptr;
  }
  idle_.notify_all();
}

template <class Look>
void RuleSet::look(Entry& entry, const StepRecord* at, const std::function<void(const Verdict&)>& fired,
                   Look&& call) {
  if (!begin(entry)) return;
  const End scope{*this};
  Rule& rule = *entry.named.rule;
  if (entry.errors_in_row == most_errors) return;
  try {
    std::optional<Finding> finding;
    entry.named.within([&] {
      rule.settle();
      if (!rule.common.enabled || (rule.fired() && !rule.common.repeat)) return;
      finding = call(rule);
      entry.errors_in_row = 0;
      rule.publish(rule.fired() || finding);
    });
    if (finding)
      fired({entry.named, std::move(*finding), at == nullptr ? Mode::global : at->mode,
             at == nullptr ? -1 : at->mode_step});
  } catch (const std::exception& error) {
    fail(entry, error.what());
  } catch (...) {
    fail(entry, "it threw something that is no std::exception");
  }
}

void RuleSet::fail(Entry& entry, const std::string& message) {
  ++errors_;
  const bool last = ++entry.errors_in_row == most_errors;
  complain_(entry.named.id, message + (last ? "; it failed " + std::to_string(most_errors) +
                                                  " times in a row and is switched off"
                                            : ""));
}

void RuleSet::add(std::shared_ptr<const StepRecord> record,
                  const std::function<void(const Verdict&)>& fired) {
  for (const std::shared_ptr<Entry>& entry : entries()) {
    if (!entry->concerns(*record)) continue;
    look(*entry, record.get(), fired, [&](Rule& rule) {
      entry->trial.add(entry->kept(record));
      return rule.evaluate(entry->trial, *record);
    });
  }
}

void RuleSet::remember(const std::shared_ptr<const StepRecord>& record) {
  for (const std::shared_ptr<Entry>& entry : entries()) {
    if (!entry->concerns(*record) || !begin(*entry)) continue;
    const End scope{*this};
    entry->trial.add(entry->kept(record));
  }
}

void RuleSet::waited(double seconds, const std::function<void(const Verdict&)>& fired) {
  for (const std::shared_ptr<Entry>& entry : entries())
    look(*entry, nullptr, fired, [&](Rule& rule) { return rule.waited(seconds); });
}

std::vector<Verdict> RuleSet::add(std::shared_ptr<const StepRecord> record) {
  std::vector<Verdict> verdicts;
  add(std::move(record), [&](const Verdict& verdict) { verdicts.push_back(verdict); });
  return verdicts;
}

std::vector<Verdict> RuleSet::waited(double seconds) {
  std::vector<Verdict> verdicts;
  waited(seconds, [&](const Verdict& verdict) { verdicts.push_back(verdict); });
  return verdicts;
}

void RuleSet::go_back(std::int64_t step) {
  for (const std::shared_ptr<Entry>& entry : entries()) {
    if (!begin(*entry)) continue;
    const End scope{*this};
    entry->trial.go_back(step);
  }
}

}  // namespace trainyard
