#include <trainyard/rule_set.hpp>

#include <algorithm>

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

RuleSet::RuleSet(std::vector<Collection> collections,
                 std::function<void(const std::string&, const std::string&)> complain)
    : trial_(std::move(collections)), complain_(std::move(complain)) {}

void RuleSet::attach(const std::vector<NamedRule>& rules, const RunScale& scale) {
  entries_.clear();
  std::int64_t window = 1;
  for (const NamedRule& named : rules) {
    const Rule& rule = *named.rule;
    const auto steps = [&](const char* option, const Duration& length) {
      if (const auto count = length.steps(scale)) return *count;
      throw ConfigError("rules." + named.id + "." + option + " = \"" + length.text() +
                        "\" cannot be converted to steps of this run; use ba");
    };
    Entry entry{.named = named, .watches = rule.watches(), .modes = rule.modes()};
    entry.every = std::max<std::int64_t>(1, steps("every", rule.common.every));
    entry.start = steps("start", rule.common.start);
    if (rule.common.end) entry.end = steps("end", *rule.common.end);
    window = std::max(window, rule.window());
    entries_.push_back(std::move(entry));
  }
  trial_.keep(window);
}

template <class Look>
void RuleSet::look(Entry& entry, const StepRecord* at, std::vector<Verdict>& verdicts, Look&& call) {
  Rule& rule = *entry.named.rule;
  if (!rule.common.enabled || entry.errors_in_row == most_errors) return;
  try {
    rule.settle();
    if (rule.fired() && !rule.common.repeat) return;
    std::optional<Finding> finding = call(rule);
    entry.errors_in_row = 0;
    rule.publish(rule.fired() || finding);
    if (finding)
      verdicts.push_back({entry.named, std::move(*finding), at == nullptr ? Mode::global : at->mode,
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

std::vector<Verdict> RuleSet::add(std::shared_ptr<const StepRecord> record) {
  const StepRecord& now = *record;
  trial_.add(std::move(record));
  std::vector<Verdict> verdicts;
  for (Entry& entry : entries_) {
    if (std::find(entry.modes.begin(), entry.modes.end(), now.mode) == entry.modes.end()) continue;
    if (now.mode == Mode::train && !is_due(now.mode_step, entry.every, entry.start, entry.end)) continue;
    look(entry, &now, verdicts, [&](Rule& rule) -> std::optional<Finding> {
      const bool sees = std::any_of(now.tensors.begin(), now.tensors.end(), [&](const TensorRecord& tensor) {
        return std::any_of(entry.watches.begin(), entry.watches.end(),
                           [&](const Watch& watch) { return trial_.belongs(tensor.name, watch.tensors); });
      });
      if (!sees) return std::nullopt;
      return rule.evaluate(trial_, now);
    });
  }
  return verdicts;
}

std::vector<Verdict> RuleSet::waited(double seconds) {
  std::vector<Verdict> verdicts;
  for (Entry& entry : entries_)
    look(entry, nullptr, verdicts, [&](Rule& rule) { return rule.waited(seconds); });
  return verdicts;
}

}  // namespace trainyard
