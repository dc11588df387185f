// options.*: what the manifest allows is accepted, the rest refused, and a run with it ends in order.
#include <csignal>
#include <random>

#include "core/check/values.hpp"
#include "core/engine/check/groups.hpp"
#include "core/runfile/load.hpp"
#include "core/runfile/resolve.hpp"

namespace trainyard::check {
namespace {

/// Turns "lr = 0.1" into what --set takes: "optimizer.lr=0.1".
std::string as_set(const Subject& subject, const std::string& assignment) {
  const std::size_t equals = assignment.find(" = ");
  return set_path(subject.file, assignment.substr(0, equals)) + "=" + assignment.substr(equals + 3);
}

/// Returns the message with which `validate` refuses an option; empty if it accepts it.
std::string refusal(const Subject& subject, const std::string& set) {
  try {
    valid(subject, subject.run->text(), {set});
    return {};
  } catch (const ConfigError& error) {
    return error.what();
  }
}

std::string filling(const Subject& subject, const OptionSpec& option) {
  const std::vector<std::string> all = candidates(option, *subject.run->host, subject.materials);
  return all.empty() ? "\"\"" : all.front();
}

/// Trains runs with values that the manifest allows.
class Trials {
 public:
  explicit Trials(const Subject& subject) : subject_(subject) {}

  /// Trains a run and returns what is wrong with its end. One that takes too long, or all memory, is no fault
  /// of the plugin (a trillion rows are many): it is counted for outcome(), and after five no run is made.
  std::optional<Outcome> run(const std::vector<std::string>& sets) {
    const auto seconds = static_cast<unsigned>(4.0 + 20.0 * subject_.step_seconds);  // for six steps
    constexpr int most = 5;
    if (large_ == most) return std::nullopt;
    std::string said;
    for (const std::string& set : sets) said += " " + set;
    doing("a run trains with" + said);
    const Trained trained = train(subject_, {.text = subject_.run->text(), .sets = sets, .seconds = seconds});
    std::optional<Outcome> bad = bad_end(trained, Allow::messages);
    const bool memory = bad && (bad->what.find("alloc") != std::string::npos ||
                                bad->what.find("memory") != std::string::npos);
    if (!trained.died_by(SIGALRM) && !memory) return bad;
    if (large_++ == 0) first_ = said;
    return std::nullopt;
  }

  Outcome outcome() const {
    if (large_ == 0) return {};
    return {Verdict::warn,
            "a run is not over in seconds, or has not memory enough, with" + first_ +
                ": a bound in the manifest finds what is mistyped",
            {}};
  }

 private:
  const Subject& subject_;
  int large_ = 0;
  std::string first_;
};

}  // namespace

Outcome bounds(const Subject& subject) {
  std::vector<std::string> sets, common;  // accepted values; those of options common to the kind
  std::string wrong;
  each_option(
      subject.file.manifest.options, [&](const OptionSpec& other) { return filling(subject, other); },
      [&](const OptionSpec& option, const Written& written) {
        for (const Trial& trial : trials(option)) {
          const std::string set = as_set(
              subject, written(option.list ? as_list(trial.text, option.count.value_or(1)) : trial.text));
          const bool refused = !refusal(subject, set).empty();
          if (!trial.allowed && !refused && wrong.empty())
            wrong = set + " is taken, which its manifest does not allow";
          if (trial.allowed && !refused) (option.common ? common : sets).push_back(set);
        }
      });
  if (!wrong.empty()) return failed(wrong);
  constexpr std::size_t most = 40;
  std::mt19937_64 dice(subject.seed);
  std::shuffle(sets.begin(), sets.end(), dice);
  std::shuffle(common.begin(), common.end(), dice);
  sets.insert(sets.end(), common.begin(), common.end());
  if (sets.size() > most) sets.resize(most);
  Trials trials_of(subject);
  for (const std::string& set : sets)
    if (auto bad = trials_of.run({set})) return *bad;
  return trials_of.outcome();
}

Outcome random_options(const Subject& subject) {
  constexpr int runs = 8;
  std::mt19937_64 dice(subject.seed);
  Trials trials_of(subject);
  for (int run = 0; run < runs; ++run) {
    std::vector<std::string> sets;
    for (const OptionSpec& option : subject.file.manifest.options) {
      if (dice() % 2 == 0) continue;
      const std::string value = random_value(option, dice);
      if (value.empty()) continue;
      const std::string set = as_set(
          subject, option.name + " = " + (option.list ? as_list(value, option.count.value_or(1)) : value));
      if (refusal(subject, set).empty()) sets.push_back(set);
    }
    if (sets.empty()) continue;
    if (auto bad = trials_of.run(sets)) return *bad;
  }
  return trials_of.outcome();
}

}  // namespace trainyard::check
