#include <trainyard/rule_set.hpp>

#include <algorithm>
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

struct RuleSet::Entry {
  NamedRule named;
  std::vector<Watch> watches;
  std::vector<Mode> modes;
  std::int64_t every = 1, start = 0, end = 0;
  std::int64_t window = 1;
  Trial trial;
  int errors_in_row = 0;

  Entry(const NamedRule& rule, std::vector<Collection> collections)
      : named(rule), trial(std::move(collections)) {
    named.within([&] {
      watches = named.rule->watches();
      modes = named.rule->modes();
      window = std::max<std::int64_t>(1, named.rule->window());
    });
    trial.keep(window);
  }

  bool watches_tensor(const TensorRecord& tensor, bool values) const {
    return std::any_of(watches.begin(), watches.end(), [&](const Watch& watch) {
      return (watch.values || !values) && trial.belongs(tensor.name, watch.tensors);
    });
  }

  bool concerns(const StepRecord& now) const {
    if (std::find(modes.begin(), modes.end(), now.mode) == modes.end()) return false;
    if (now.mode == Mode::train && !is_due(now.mode_step, every, start, end)) return false;
    return std::any_of(now.tensors.begin(), now.tensors.end(),
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
  for (const NamedRule& named : rules) {
    const RuleCommon& common = named.rule->common;
    const auto steps = [&](const char* option, const Duration& length) {
      if (const auto count = length.steps(scale)) return *count;
      throw ConfigError("rules." + named.id + "." + option + " = \"" + length.text() +
                        "\" cannot be converted to steps of this run; use ba");
    };
    auto entry = std::make_shared<Entry>(named, collections_);
    entry->every = std::max<std::int64_t>(1, steps("every", common.every));
    entry->start = steps("start", common.start);
    if (common.end) entry->end = steps("end", *common.end);
    fresh.push_back(std::move(entry));
  }
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
