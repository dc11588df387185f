// Random plans, commands, kills and resumes, over every slot, every shipped plugin and its options: no run
// ends that validation accepted, what is refused changes nothing, and the bits are those of a run whose file
// plans what was made in the end.
//   TRAINYARD_SEQUENCES=2000 TRAINYARD_SEED=1 build/release/bin/contract_tests "random plans*"
// On two ranks TRAINYARD_RANK_SEQUENCES says how many; a swap may fail on one of them, and is none then.
// TRAINYARD_SUBJECT="rule confusion" has all runs made around one plugin. TRAINYARD_VARIED=50 gives half of them
// other plugins, another executor and precision, where validation takes them.
#include <signal.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include <trainyard/executor.hpp>

#include "contract/executors.hpp"
#include "contract/host_run.hpp"
#include "contract/process.hpp"
#include "core/cli/client.hpp"
#include "core/plugins/kinds.hpp"
#include "core/runfile/at_path.hpp"
#include "core/runfile/load.hpp"
#include "core/runfile/print.hpp"
#include "support/folder.hpp"
#include "support/run.hpp"

namespace sequences_tests {

using namespace trainyard;
using namespace trainyard::contract;
using nlohmann::json;
using plugins::PluginFile;
using test::shipped;

namespace {

constexpr int run_steps = 60;

int from_environment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

class Dice {
 public:
  explicit Dice(int seed) : engine_(static_cast<std::uint64_t>(seed)) {}
  int below(int n) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  template <class List>
  auto& one_of(List& list) {
    return list[static_cast<std::size_t>(below(static_cast<int>(std::size(list))))];
  }

 private:
  std::mt19937_64 engine_;
};

/// A swap as somebody would write it: options as TOML.
struct Wish {
  std::string slot, type, carry, watch, change;
  std::vector<std::pair<std::string, std::string>> options;

  std::string planned(const std::string& at) const {
    std::string text = "[[swap]]\nat = \"" + at + "\"\nslot = \"" + slot + "\"\n";
    for (const auto& [key, value] :
         {std::pair("type", type), {"carry", carry}, {"watch", watch}, {"change", change}})
      if (!value.empty()) text += std::string(key) + " = \"" + value + "\"\n";
    if (options.empty()) return text;
    text += "options = { ";
    for (const auto& [key, value] : options) text += (text.ends_with("{ ") ? "" : ", ") + key + " = " + value;
    return text + " }\n";
  }
};

std::string address_of(const config::SlotConfig& slot) {
  return slot.kind == "dataset" ? "data" : slot.address();
}

/// A run file around a plugin, and what could be asked of it.
class Subject {
 public:
  Subject(Dice& dice, const PluginFile& plugin, int ranks)
      : dice_(dice), host_(*host_run(plugin).host), ranks_(ranks) {
    text_ = host_run(plugin).text();
    sets_ = {"run.resume=auto", "trainer.max_duration=20ep", "logging.interval=10ba",
             "checkpoint.interval=" + std::to_string(3 + dice.below(12)) + "ba",
             "trainer.eval_interval=" + std::to_string(3 + dice.below(9)) + "ba"};
    if (ranks > 1) {  // three steps an epoch, the last of which has nothing for the second rank
      sets_.push_back("data.train.batch_size=8");
      sets_.push_back("data.train.micro_batch_size=2");
    }
    bool hears_all = plugin.manifest.fires.size() == std::size(micro_events);
    if (plugin.manifest.kind != Executor::kind.name)
      hears_all = dice.chance(from_environment("TRAINYARD_VARIED", 0)) ? vary() : true;
    if (text_.find("[checkpoint]\n") == std::string::npos)
      text_ += "[checkpoint]\ntype = \"" + std::string(dice.chance(50) ? "full" : "async") + "\"\n";
    if (hears_all) {
      text_ += "[[hooks]]\ntype = \"faulty\"\nstep = 100000\nway = \"throw\"\n";
      text_ += "[[hooks]]\ntype = \"dawdling\"\nsteps = 1\nseconds = 0.001\n";
    }
    const config::Resolution found = resolve(text_, sets_, ranks);
    if (!found.config) throw std::runtime_error(found.findings.text() + text_);
    for (const config::SlotConfig& slot : found.config->slots)
      if (slot.type != "dawdling" && !plugins::find_kind(slot.kind)->beside) slots_.push_back(slot);
  }

  const std::string& text() const { return text_; }
  const std::vector<std::string>& sets() const { return sets_; }
  int ranks() const { return ranks_; }

  Wish wish(int now) {
    if (dice_.chance(25)) return come_or_go();
    const config::SlotConfig& slot = dice_.one_of(slots_);
    static const char* const watches[] = {"", "", "0ba", "1ba", "7ba", "20ba"};
    Wish wish{.slot = address_of(slot),
              .type = {},
              .carry = {},
              .watch = dice_.one_of(watches),
              .change = {},
              .options = {}};
    if (ranks_ > 1) wish.watch.clear();         // several ranks do not go back
    if (slot.type == "faulty" && ranks_ > 1) {  // cannot be made on one of them, or is late there
      wish.options = {{"at", "\"construction\""},
                      {"way", dice_.chance(70) ? "\"throw\"" : "\"doze\""},
                      {"rank", std::to_string(dice_.below(ranks_))}};
      return wish;
    }
    if (slot.type == "faulty") {  // fails while it is watched
      wish.watch = std::to_string(run_steps) + "ba";
      wish.options = {{"step", std::to_string(now + 1 + dice_.below(6))}};
      return wish;
    }
    std::vector<const PluginFile*> choices;
    for (const PluginFile& file : shipped().files())
      if (file.manifest.kind == slot.kind) choices.push_back(&file);
    const PluginFile* plugin = dice_.one_of(choices);
    if (dice_.chance(40))
      for (const PluginFile* each : choices)
        if (each->manifest.name == slot.type) plugin = each;
    wish.type = plugin->manifest.name;
    if (dice_.chance(25)) wish.carry = "fresh";
    static const char* const of_schedules[] = {"state", "restart", "splice"};
    if (slot.kind == "schedule" && dice_.chance(50)) wish.carry = dice_.one_of(of_schedules);
    for (const OptionSpec& option : plugin->manifest.options) {
      const bool needed = option.required && plugin->manifest.name != slot.type;
      if (!needed && !dice_.chance(plugin->manifest.options.size() > 6 ? 10 : 30)) continue;
      const std::vector<std::string> values = candidates(option, host_);
      if (!values.empty()) wish.options.emplace_back(option.name, dice_.one_of(values));
    }
    if (dice_.chance(3)) wish.options.emplace_back("nonsense", "1");
    return wish;
  }

  /// A plugin more in a list, or one less: of those that the run began with, and of guests.
  Wish come_or_go() {
    static const std::pair<const char*, const char*> lists[] = {
        {"hook", "hooks."}, {"rule", "rules."}, {"metric", "metrics."}, {"sink", "logging.sinks."}};
    const auto& [kind, list] = dice_.one_of(lists);
    const std::string guest = list + std::string(dice_.chance(50) ? "guest" : "other");
    Wish wish{.slot = guest, .type = {}, .carry = {}, .watch = {}, .change = "add", .options = {}};
    if (dice_.chance(40)) wish.change = "remove";
    if (wish.change == "remove" && dice_.chance(30)) wish.slot = address_of(dice_.one_of(slots_));
    if (wish.change == "remove") return wish;
    std::vector<const PluginFile*> choices;
    for (const PluginFile& file : shipped().files())
      if (file.manifest.kind == kind) choices.push_back(&file);
    const PluginFile& plugin = *dice_.one_of(choices);
    wish.type = plugin.manifest.name;
    for (const OptionSpec& option : plugin.manifest.options) {
      if (!option.required && !dice_.chance(10)) continue;
      const std::vector<std::string> values = candidates(option, host_);
      if (!values.empty()) wish.options.emplace_back(option.name, dice_.one_of(values));
    }
    return wish;
  }

 private:
  Dice& dice_;
  const Surroundings& host_;
  const int ranks_;
  std::string text_;
  std::vector<std::string> sets_;
  std::vector<config::SlotConfig> slots_;

  /// Other plugins, another executor and another precision, each where validation takes it beside the others. Whether
  /// all events of a micro-batch are fired then.
  bool vary() {
    for (int more = dice_.below(3); more > 0; --more) {
      const PluginFile& file = dice_.one_of(ranks_ > 1 ? with_table() : alone());
      static const std::set<std::string> of_host = {"dataset", "model", "loss",
                                                    "executor"};  // they fit each other
      if (of_host.contains(file.manifest.kind) || plugins::find_kind(file.manifest.kind)->beside) continue;
      if (text_.find("\"" + file.manifest.name + "\"") == std::string::npos)
        take(with_plugin(text_, host_run(file)), sets_);
    }
    std::vector<std::string> sets = sets_;
    sets.push_back("trainer.precision=" + std::string(dice_.one_of(precisions)));
    const contract::Mode& mode = dice_.one_of(modes());
    return !take(without_executor(text_) + mode.table(), sets) || mode.fires_all;
  }
  bool take(const std::string& text, const std::vector<std::string>& sets) {
    if (!resolve(text, sets, ranks_).config || Apart(text).check(sets, ranks_) != 0) return false;
    text_ = text;
    sets_ = sets;
    return true;
  }
};

std::string random_plan(Dice& dice, Subject& subject) {
  std::string plan;
  for (int wanted = dice.below(5), tries = 0; wanted > 0 && tries < 40; ++tries) {
    const int at = 1 + dice.below(run_steps - 2);
    const std::string entry = subject.wish(at).planned(std::to_string(at) + "ba");
    if (!resolve(subject.text() + plan + entry, subject.sets(), subject.ranks()).config) continue;
    plan += entry;
    --wanted;
  }
  return plan;
}

/// One client after the other, until the process is gone.
class Disturbance {
 public:
  Disturbance(Dice& dice, Subject& subject, std::string run)
      : dice_(dice), subject_(subject), run_(std::move(run)) {}

  /// Sends something. False where nobody listens.
  bool command() {
    try {
      control::Client client(run_);
      const auto ask = [&](const control::Request& request) {
        client.ask(request, std::chrono::seconds(20));
      };
      const control::Status status =
          client.ask({.verb = control::Verb::status}, std::chrono::seconds(20)).get<control::Status>();
      pid_ = static_cast<pid_t>(status.pid);
      const int what = dice_.below(100);
      try {
        if (what < 60)
          ask(swap(static_cast<int>(status.step)));
        else if (what < 70)
          ask({.verb = control::Verb::checkpoint});
        else if (what < 80)
          ask({.verb = control::Verb::eval});
        else if (what < 90)
          ask({.verb = control::Verb::pause});
        else
          ask({.verb = control::Verb::resume});
      } catch (const Error& refused) {}
      if (what >= 80 && what < 90 && dice_.chance(70)) {
        for (int more = dice_.below(3); more > 0; --more) command();
        ask({.verb = control::Verb::resume});
      }
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }
  void end_pause() {
    try {
      control::Client(run_).ask({.verb = control::Verb::resume}, std::chrono::seconds(20));
    } catch (const std::exception&) {}
  }
  pid_t pid() const { return pid_; }

 private:
  control::Request swap(int step) {
    const Wish wish = subject_.wish(step + 4);
    control::Request request{.verb = control::Verb::swap};
    for (const auto& [key, value] : wish.options) request.assignments.push_back(key + "=" + value);
    if (!wish.change.empty()) {
      request.verb = wish.change == "add" ? control::Verb::add : control::Verb::remove;
      request.slot = wish.slot;
      request.type = wish.type;
      return request;
    }
    const bool set = !request.assignments.empty() && dice_.chance(30) && wish.watch.empty();
    if (set) {
      request.verb = control::Verb::set;
      for (std::string& each : request.assignments) each = wish.slot + "." + each;
      if (dice_.chance(50))
        request.assignments.push_back("optimizer.lr=0.0" + std::to_string(1 + dice_.below(9)));
      return request;
    }
    request.slot = wish.slot;
    request.type = wish.type.empty() ? "faulty" : wish.type;
    request.carry = wish.carry;
    if (!wish.watch.empty()) request.watch = Duration::parse(wish.watch);
    return request;
  }

  Dice& dice_;
  Subject& subject_;
  std::string run_;
  pid_t pid_ = 0;
};

/// What was made in the end, as the plan of a run file.
std::string made(const std::string& run) {
  std::map<std::int64_t, std::pair<std::int64_t, std::string>> swaps;
  for (const std::string& text : test::lines(run + "/journal.jsonl")) {
    const json line = json::parse(text, nullptr, false);
    if (!line.is_object() || !line.contains("details")) continue;
    const Table details = config::load_resolved("journal", line["details"].get<std::string>()).root;
    const std::int64_t number = *config::at_path<std::int64_t>(details, "number");
    swaps.erase(number);
    if (line["what"] != "swap") continue;
    std::string plan;
    for (const Value& swap : *config::at_path<Array>(details, "swap")) {
      plan += "[[swap]]\nat = \"" + std::to_string(line["step"].get<std::int64_t>()) + "ba\"\n";
      for (const Table::Entry& entry : swap.as<Table>().entries())
        plan +=
            entry.key + " = " + (entry.key == "watch" ? "\"0ba\"" : config::toml_text(entry.value)) + "\n";
    }
    swaps[number] = {line["step"].get<std::int64_t>(), plan};
  }
  std::multimap<std::int64_t, std::string> in_time;
  for (const auto& [number, swap] : swaps) in_time.emplace(swap.first, swap.second);
  std::string plan;
  for (const auto& [step, entries] : in_time) plan += entries;
  return plan;
}

/// Whether bits depend on where the run was looked at: on pauses, which commands and signals make.
bool has_pauses(const std::string& text) {
  return std::ranges::any_of(modes(), [&](const contract::Mode& mode) {
    return mode.pauses && text.find(mode.options.substr(0, mode.options.size() - 1)) != std::string::npos;
  });
}

/// Whether a rule did something to the run: it looks beside it, and acts a step sooner or later.
bool rules_acted(const std::string& run) {
  for (const std::string& text : test::lines(run + "/journal.jsonl"))
    if (const json line = json::parse(text, nullptr, false);
        line.is_object() && line["what"] == "rule_fired") {
      const std::string why = line["why"];
      if (!why.ends_with("action: report") && !why.ends_with(", not taken")) return true;
    }
  return false;
}

json result_of(const std::string& run) {
  return json::parse(test::read_file(run + "/result.json"));
}

std::string outcome(const std::string& run) {
  const json result = result_of(run);
  std::string text = result["digest"].dump() + " " + result["steps"].dump();
  for (const auto& [name, value] : result["metrics"].items())
    if (name.starts_with("val/")) text += " " + name + "=" + value.dump();
  return text;
}

struct Tally {
  int runs = 0, starts = 0, kills = 0, signals = 0, commands = 0, swaps = 0, refused_at_start = 0,
      steered_by_rules = 0, looked_at = 0, diverged = 0;
};

const PluginFile& subject_of(Dice& dice, int ranks) {
  const auto& files = ranks > 1 ? with_table() : alone();
  const PluginFile* any = &dice.one_of(files);
  while (!resolve(host_run(*any).text(), {}, ranks).config) any = &dice.one_of(files);
  const char* const wanted = std::getenv("TRAINYARD_SUBJECT");
  for (const PluginFile& file : shipped().files())
    if (wanted != nullptr && title(file) == wanted) return file;
  return *any;
}

/// One run, disturbed to its end, and the same undisturbed.
void sequence(int seed, Tally& tally, int ranks) {
  Dice dice(seed);
  Subject subject(dice, subject_of(dice, ranks), ranks);
  std::string plan = random_plan(dice, subject);
  Apart disturbed;
  const std::string run = disturbed.run();
  int disturbances = dice.below(4);
  bool diverges = false;
  for (bool ended = false; !ended;) {
    disturbed.write(subject.text() + plan);
    INFO("seed " << seed << "\n" << subject.text() << plan);
    auto training = std::async(std::launch::async, [&] { return disturbed.train(subject.sets(), ranks); });
    ++tally.starts;
    const auto going = [&] {
      return training.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
    };
    Disturbance disturbance(dice, subject, run);
    const bool to_be_killed = disturbances-- > 0;
    int commands = dice.below(6);
    while (going()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(dice.below(12)));
      if (commands > 0) {
        if (disturbance.command()) --commands, ++tally.commands;
        continue;
      }
      if (to_be_killed && disturbance.pid() == 0) {
        disturbance.end_pause();
        if (disturbance.command()) ++tally.commands;
        continue;
      }
      if (to_be_killed) {
        const bool kills = dice.chance(60);
        ++(kills ? tally.kills : tally.signals);
        kill(disturbance.pid(), kills ? SIGKILL : SIGTERM);
        training.wait();
      }
      disturbance.end_pause();
    }
    const int status = training.get();
    const std::string said = disturbed.said();
    const int refused = ranks > 1 ? 6 : 2;  // by a rank, perhaps not the first
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 2 || WEXITSTATUS(status) == refused) &&
        said.find("that is planned at step") != std::string::npos) {
      ++tally.refused_at_start;  // before its first step, and nothing is lost
      const std::size_t last = plan.rfind("[[swap]]");
      plan = plan.substr(0, last);
      std::filesystem::remove_all(run);
      continue;
    }
    INFO(said << "status " << status << " of the first rank that did not end in order");
    const bool interrupted = (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
                             (WIFEXITED(status) && WEXITSTATUS(status) == 75);
    if (to_be_killed && interrupted) continue;
    for (const char* left : {"/report.json", "/journal.jsonl"})
      if (std::filesystem::exists(run + left)) UNSCOPED_INFO(test::read_file(run + left));
    diverges = WIFEXITED(status) && WEXITSTATUS(status) == static_cast<int>(ExitCode::numeric);
    ended = diverges || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(ended);
    if (!ended) return;
  }
  ++tally.runs;
  const std::string as_made = made(run);
  for (std::size_t at = 0; (at = as_made.find("[[swap]]", at)) != std::string::npos; ++at) ++tally.swaps;
  const Apart plain(subject.text() + as_made);
  const int status = plain.train(subject.sets(), ranks);
  INFO("seed " << seed << "\n" << subject.text() << "\nplan:\n" << plan << "\nmade:\n" << as_made);
  INFO(plain.said());
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == (diverges ? static_cast<int>(ExitCode::numeric) : 0));
  if (diverges) {
    ++tally.diverged;
    CHECK(result_of(run)["steps"] == result_of(plain.run())["steps"]);
  }
  if (diverges || WEXITSTATUS(status) != 0) return;
  if (rules_acted(run) || rules_acted(plain.run()))
    ++tally.steered_by_rules;
  else if (has_pauses(subject.text() + plan + as_made))
    ++tally.looked_at;
  else
    CHECK(outcome(run) == outcome(plain.run()));
}

}  // namespace

namespace {

void sequences(int count, int ranks) {
  const int first = from_environment("TRAINYARD_SEED", 1);
  Tally tally;
  for (int i = 0; i < count; ++i) {
    try {
      sequence(first + i, tally, ranks);
    } catch (const std::runtime_error& error) {
      FAIL_CHECK("seed " << first + i << ": " << error.what());
    }
  }
  WARN(tally.runs << " runs with " << tally.swaps << " swaps, " << tally.starts << " starts, " << tally.kills
                  << " kills, " << tally.signals << " signals, " << tally.commands << " commands; "
                  << tally.refused_at_start << " plans refused before the first step; " << tally.diverged
                  << " whose loss is not finite; " << tally.steered_by_rules << " runs steered by rules and "
                  << tally.looked_at << " that depend on where they pause, whose bits are not compared");
  CHECK(tally.runs > count / 2);
}

}  // namespace

TEST_CASE("random plans, commands, kills and resumes end as what was made of them") {
  sequences(from_environment("TRAINYARD_SEQUENCES", 50), 1);
}

TEST_CASE("random plans, commands, kills and resumes of two ranks end as what was made of them") {
  sequences(from_environment("TRAINYARD_RANK_SEQUENCES", 8), 2);
}

}  // namespace sequences_tests
