#include <trainyard/rule_set.hpp>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include <trainyard/error.hpp>

namespace trainyard {
namespace {

/// A rule that throws so often in a row is not called again.
constexpr int most_errors = 3;
/// attach() waits so long for a rule that is removed and is in a call.
constexpr std::chrono::seconds patience{1};

}  // namespace

void RuleSwap::describe(Fields<RuleSwap>& m) {
  m.option("slot", &RuleSwap::slot, "the slot, as trainyard ctl swap takes it: optimizer, hooks.ID")
      .required();
  m.option("type", &RuleSwap::type, "the plugin that takes over; the same one without it");
  m.option("set", &RuleSwap::set, "its options: \"lr=1e-4\"");
}

void RuleCommon::describe(Fields<RuleCommon>& m) {
  m.option("enabled", &RuleCommon::enabled,
           "false: it waits, until it is swapped in or trainyard ctl set rules.ID.enabled=true");
  m.option("every", &RuleCommon::every, "how often it looks: steps start, start + every, ... before end");
  m.option("start", &RuleCommon::start, "first step, from 0");
  m.option("end", &RuleCommon::end, "it looks at steps before this one only");
  m.option("action", &RuleCommon::action,
           "when it fires, beside the report: the run stops, with a checkpoint or without; the learning rate "
           "is scaled; the next step is skipped; a plugin is swapped")
      .one_of({"report", "stop", "checkpoint_and_stop", "lr_scale", "skip_step", "swap"});
  m.option("repeat", &RuleCommon::repeat, "goes on looking after it fired, instead of once a run");
  m.option("lr_scale", &RuleCommon::lr_scale, "factor on the learning rate from then on").above(0.0);
  m.option("swap", &RuleCommon::swap, "what the action swap does: { slot, type, set }");
  m.option("notify", &RuleCommon::notify,
           "command that is run, too: RULE, MESSAGE, STEP and RUN are in its environment");
}

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
  State loaded;
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(loaded_, false)) return;
    loaded = published_;
  }
  const StateReader reader(loaded);
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

  /// Returns the record without values that this rule did not ask for, where it keeps several.
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

/// A rule at work, in a turn: it does not begin where the rule has gone, or the turn is over.
class RuleSet::Work {
 public:
  Work(RuleSet& set, const Turn& turn, const std::shared_ptr<Entry>& of) : entry(*of), set_(set) {
    const std::lock_guard lock(set.mutex_);
    began_ = turn.number == set.turns_ &&
             std::find(set.entries_.begin(), set.entries_.end(), of) != set.entries_.end();
    if (began_) set.busy_ = &entry;
  }
  ~Work() {
    {
      const std::lock_guard lock(set_.mutex_);
      if (!goes_on_locked()) return;
      set_.busy_ = nullptr;
    }
    set_.idle_.notify_all();
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// Returns whether it began, and was not left behind since.
  bool goes_on() const {
    const std::lock_guard lock(set_.mutex_);
    return goes_on_locked();
  }

  Entry& entry;

 private:
  bool goes_on_locked() const { return began_ && set_.busy_ == &entry; }

  RuleSet& set_;
  bool began_ = false;
};

RuleSet::RuleSet(std::vector<Collection> collections,
                 std::function<void(const std::string&, const std::string&)> complain)
    : collections_(std::move(collections)), complain_(std::move(complain)) {}
RuleSet::~RuleSet() = default;

std::optional<std::string> RuleSet::attach(const std::vector<NamedRule>& rules, const RunScale& scale) {
  std::vector<std::shared_ptr<Entry>> fresh;
  fresh.reserve(rules.size());
  for (const NamedRule& named : rules) fresh.push_back(std::make_shared<Entry>(named, scale, collections_));
  std::optional<std::string> left;
  std::unique_lock lock(mutex_);
  const auto wait = [&](const auto& idle) {
    if (idle_.wait_for(lock, patience, idle)) return true;
    left = busy_->named.id;
    busy_ = nullptr;
    ++turns_;
    return false;
  };
  for (std::shared_ptr<Entry>& entry : fresh)
    for (const std::shared_ptr<Entry>& old : entries_) {
      if (old->named.id != entry->named.id) continue;
      if (old->named.rule == entry->named.rule) {
        entry = old;  // it may be at work
        break;
      }
      if (wait([&] { return busy_ != old.get(); }))
        for (const auto& record : old->trial.records()) entry->trial.add(record);
      break;
    }
  for (const std::shared_ptr<Entry>& entry : fresh)
    if (std::find(entries_.begin(), entries_.end(), entry) == entries_.end())
      entry->named.within([&] {  // a run that goes back to here finds a state
        if (const auto alone = entry->named.rule->enter()) entry->named.rule->publish(false);
      });
  entries_ = std::move(fresh);
  wait([&] {
    return busy_ == nullptr || std::any_of(entries_.begin(), entries_.end(),
                                           [&](const auto& each) { return each.get() == busy_; });
  });
  return left;
}

RuleSet::Turn RuleSet::turn() const {
  const std::lock_guard lock(mutex_);
  return {entries_, turns_};
}

template <class Look>
void RuleSet::look(const Work& work, const StepRecord* at, const std::function<void(const Verdict&)>& fired,
                   Look&& call) {
  Entry& entry = work.entry;
  if (!work.goes_on() || entry.errors_in_row == most_errors) return;
  try {
    entry.named.within([&] {
      Rule& rule = *entry.named.rule;
      const auto alone = rule.enter();
      if (!alone) return;
      rule.settle();
      if (!rule.common.enabled || (rule.fired() && !rule.common.repeat)) return;
      std::optional<Finding> finding = call(rule);
      if (!work.goes_on()) return;
      entry.errors_in_row = 0;
      rule.publish(rule.fired() || finding);
      if (finding)
        fired({entry.named, std::move(*finding), at == nullptr ? Mode::global : at->mode,
               at == nullptr ? -1 : at->mode_step});
    });
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
  const Turn now = turn();
  for (const std::shared_ptr<Entry>& entry : now.entries) {
    if (!entry->concerns(*record)) continue;
    look(Work(*this, now, entry), record.get(), fired, [&](Rule& rule) {
      entry->trial.add(entry->kept(record));
      return rule.evaluate(entry->trial, *record);
    });
  }
}

void RuleSet::remember(const std::shared_ptr<const StepRecord>& record) {
  const Turn now = turn();
  for (const std::shared_ptr<Entry>& entry : now.entries) {
    if (!entry->concerns(*record)) continue;
    const Work work(*this, now, entry);
    if (work.goes_on()) entry->trial.add(entry->kept(record));
  }
}

void RuleSet::waited(double seconds, const std::function<void(const Verdict&)>& fired) {
  const Turn now = turn();
  for (const std::shared_ptr<Entry>& entry : now.entries)
    look(Work(*this, now, entry), nullptr, fired, [&](Rule& rule) { return rule.waited(seconds); });
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
  const Turn now = turn();
  for (const std::shared_ptr<Entry>& entry : now.entries) {
    const Work work(*this, now, entry);
    if (work.goes_on()) entry->trial.go_back(step);
  }
}

}  // namespace trainyard
