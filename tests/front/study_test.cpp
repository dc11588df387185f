// Studies as their plugins are, without a training: what they ask for is held against the papers, and the ledger against
// what a kill leaves of it.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include <catch2/catch.hpp>

#include "core/programs/study/ledger.hpp"
#include "core/programs/study/plot.hpp"
#include "core/programs/study/results.hpp"
#include "core/programs/study/study_file.hpp"
#include "core/runfile/parse.hpp"
#include "support/folder.hpp"

namespace study_tests {

using namespace trainyard;

namespace {

/// A plugin with these options, opened.
std::unique_ptr<Study> study(const std::string& name, const std::string& options,
                             const Study::Resolve& resolve) {
  config::Findings findings;
  const std::optional<Table> table = config::parse_text("study.toml", options, findings);
  REQUIRE(table);
  cli::StudyFile file{
      .name = name,
      .plugin = plugins::read(std::string(TRAINYARD_PLUGIN_DIR) + "/study/lib" + name + ".so").front(),
      .options = *table,
      .common = {}};
  file.options.set("run", Value("/run.toml"));
  file.options.set("metric", Value("val/loss"));
  std::unique_ptr<Study> made = cli::make_study(file);
  made->open(resolve);
  return made;
}

std::unique_ptr<Study> study(const std::string& name, const std::string& options, const Table& run = {}) {
  return study(name, options, [run](const StudyTrial&) { return run; });
}

const std::string space = "space = [{ key = \"optimizer.lr\", low = 1e-4, high = 1.0, log = true }]\n";

TrialOutcome outcome(const StudyTrial& trial, double value) {
  TrialOutcome told{.trial = trial.name,
                    .until = trial.until,
                    .metrics = {{"val/loss", value}},
                    .error = {},
                    .seconds = 1.0,
                    .rows = 150,
                    .values = 4};
  if (std::isnan(value)) told.end = TrialOutcome::End::diverged;
  return told;
}

double number_in(const StudyTrial& trial, const std::string& key) {
  for (const std::string& change : trial.set)
    if (change.starts_with(key + "=")) return std::stod(change.substr(key.size() + 1));
  return 0.0;
}

std::string call_of(const StudyTrial& trial) {
  std::string text = trial.name + " to " + (trial.until ? trial.until->text() : "the end") + ":";
  for (const std::string& change : trial.set) text += " " + change;
  return text;
}

/// Plays a study to its end with so many places, of which a random one is free next; gives the calls.
std::vector<std::string> play(Study& study, int places, unsigned seed,
                              const std::function<double(const StudyTrial&)>& value) {
  std::mt19937 random(seed);
  std::vector<std::string> calls;
  std::vector<StudyTrial> running;
  while (true) {
    while (static_cast<int>(running.size()) < places) {
      const std::optional<StudyTrial> trial = study.next(static_cast<int>(running.size()));
      if (!trial) break;
      calls.push_back(call_of(*trial));
      running.push_back(*trial);
    }
    if (running.empty()) return calls;
    const std::size_t i = random() % running.size();
    calls.push_back("end of " + running[i].name);
    study.report(outcome(running[i], value(running[i])));
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

/// A value that a trial has at a rung, in no order.
double scattered(const StudyTrial& trial) {
  std::mt19937 random(static_cast<unsigned>(std::stoul(trial.name)) * 7919U +
                      static_cast<unsigned>(trial.until->count));
  return static_cast<double>(random() % 1000) / 1000;
}

}  // namespace

TEST_CASE("the brackets of hyperband are those of the paper's formula for R = 81 and eta = 3", "[study]") {
  // n = ceil(5 * 3^s / (s + 1)), r = 81 / 3^s, then floor(n_i / 3) at 3 r_i: by hand.
  const std::vector<std::vector<std::pair<int, int>>> brackets = {
      {{81, 1}, {27, 3}, {9, 9}, {3, 27}, {1, 81}},
      {{34, 3}, {11, 9}, {3, 27}, {1, 81}},
      {{15, 9}, {5, 27}, {1, 81}},
      {{8, 27}, {2, 81}},
      {{5, 81}}};
  const auto hyperband = study("hyperband", space + "max_budget = \"81ep\"\ngoal = \"min\"\n");
  std::vector<std::pair<int, int>> planned, wanted;
  for (const StudyStage& stage : hyperband->stages())
    planned.emplace_back(static_cast<int>(stage.trials), static_cast<int>(stage.until->count));
  for (const auto& bracket : brackets) wanted.insert(wanted.end(), bracket.begin(), bracket.end());
  CHECK((planned == wanted));

  std::map<int, std::map<std::string, double>> seen;  // by budget, each trial's value
  const auto calls = play(*hyperband, 7, 1, [&](const StudyTrial& trial) {
    return seen[static_cast<int>(trial.until->count)][trial.name] = scattered(trial);
  });
  std::size_t first = 0;
  for (const auto& bracket : brackets) {
    std::set<std::string> going;
    for (int i = 0; i < bracket.front().first; ++i) {
      char name[16];
      std::snprintf(name, sizeof name, "%04zu", first++);
      going.insert(name);
    }
    for (std::size_t rung = 0; rung < bracket.size(); ++rung) {
      INFO("bracket of " << bracket.front().first << ", rung " << rung);
      CHECK(static_cast<int>(going.size()) == bracket[rung].first);
      std::vector<std::pair<double, std::string>> values;
      for (const std::string& name : going) {
        REQUIRE(seen[bracket[rung].second].contains(name));
        values.emplace_back(seen[bracket[rung].second][name], name);
      }
      std::sort(values.begin(), values.end());
      going.clear();
      for (std::size_t i = 0; i < values.size() / 3; ++i) going.insert(values[i].second);
    }
  }
  std::size_t all = 0;
  for (const auto& [budget, trials] : seen) all += trials.size();
  CHECK(all == 81 + 27 + 9 + 3 + 1 + 34 + 11 + 3 + 1 + 15 + 5 + 1 + 8 + 2 + 5);
  CHECK(calls.size() == 2 * all);
}

namespace {

/// Of a run of hyperband: the numbers of those who began in it, and of those who are trained.
struct Together {
  std::vector<std::size_t> begun, trained;

  explicit Together(const StudyTrial& trial) {
    const std::size_t first = std::stoul(trial.name), dash = trial.name.find('-');
    const std::size_t last = dash == std::string::npos ? first : std::stoul(trial.name.substr(dash + 1));
    for (std::size_t number = first; number <= last; ++number) begun.push_back(number);
    if (begun.size() == 1) {
      trained = begun;
      return;
    }
    const std::string& executor = trial.set.back();
    REQUIRE(executor.starts_with("executor={ type = \"hfta\""));
    const std::string only = "only = [";
    const std::size_t from = executor.find(only) + only.size();
    const char* at = executor.data() + from;
    for (char* end = nullptr; *at != ']'; at = *end == ',' ? end + 1 : end)
      trained.push_back(begun.at(std::strtoul(at, &end, 10)));
  }
};

/// What a study comes to where the values are these, and which configurations were trained how far.
struct Played {
  StudyResult result;
  std::set<std::pair<std::size_t, double>> trained;
  std::size_t runs = 0, largest = 0;
};

Played played(Study& study, const std::function<double(std::size_t, double)>& value) {
  Played played;
  while (const std::optional<StudyTrial> trial = study.next(0)) {
    const Together together(*trial);
    TrialOutcome told{.trial = trial->name, .until = trial->until, .metrics = {}, .error = {}};
    std::size_t finite = 0;
    for (const std::size_t number : together.trained) {
      const double found = value(number, trial->until->count);
      CHECK(played.trained.emplace(number, trial->until->count).second);
      if (std::isnan(found)) continue;
      ++finite;
      const std::string prefix =
          together.begun.size() == 1 ? "" : std::to_string(number - together.begun.front()) + "/";
      told.metrics[prefix + "val/loss"] = found;
    }
    if (finite == 0) told.end = TrialOutcome::End::diverged;
    ++played.runs;
    played.largest = std::max(played.largest, together.trained.size());
    study.report(told);
  }
  played.result = study.result();
  return played;
}

std::string text_of(const StudyResult& result) {
  std::string text;
  for (const ResultTable& table : result.tables)
    for (const auto& row : table.rows)
      for (const ResultCell& cell : row) text += cell.text + "|";
  for (const StudyBest& best : result.best) text += call_of(best.trial);
  return text;
}

}  // namespace

TEST_CASE(
    "configurations that hyperband trains together come to the rungs and the best of those trained one by "
    "one",
    "[study]") {
  const auto value = [](std::size_t number, double until) {
    std::mt19937 random(static_cast<unsigned>(number * 7919 + static_cast<std::size_t>(until)));
    return number % 5 == 2 && random() % 2 == 0 ? std::nan("") : static_cast<double>(random() % 1000) / 1000;
  };
  for (const char* most : {"9ep", "27ep", "81ep", "243ep"}) {
    const std::string text = space + "goal = \"min\"\nmax_budget = \"" + most + "\"\n";
    const auto alone = study("hyperband", text);
    const Played expected = played(*alone, value);
    CHECK(expected.largest == 1);
    for (const std::size_t together : {2U, 7U, 8U, 500U}) {
      INFO(most << ", " << together << " together");
      const auto arrays = study("hyperband", text + "together = " + std::to_string(together) + "\n");
      const Played found = played(*arrays, value);
      CHECK((found.trained == expected.trained));
      CHECK(text_of(found.result) == text_of(expected.result));
      CHECK(found.largest <= together);
      CHECK(found.runs < expected.runs);
      std::int64_t planned = 0;
      for (const StudyStage& stage : arrays->stages()) planned += stage.trials;
      CHECK(static_cast<std::int64_t>(found.runs) <= planned);
    }
  }
  CHECK_THROWS_AS(
      study("hyperband",
            "max_budget = \"9ep\"\ntogether = 2\nspace = [{ key = \"model.width\", values = [1, 2] }]\n"),
      ConfigError);
}

TEST_CASE("asha takes the trials of algorithm 2 of the paper, whatever finishes when", "[study]") {
  for (const unsigned seed : {1U, 2U, 3U, 4U, 5U}) {
    const int eta = 2 + static_cast<int>(seed % 3), places = 1 + static_cast<int>(seed % 4), trials = 40,
              rate = seed == 4 ? 1 : 0;
    const int top = static_cast<int>(std::floor(std::log(64.5) / std::log(eta))) - rate;
    const auto asha = study("asha", space + "max_budget = \"64ba\"\ngoal = \"min\"\ntrials = 40\neta = " +
                                        std::to_string(eta) + "\nstop_rate = " + std::to_string(rate) + "\n");
    // The paper's, told anew: rungs as lists of (loss, number).
    std::vector<std::vector<std::pair<double, int>>> rungs(static_cast<std::size_t>(top) + 1);
    std::vector<std::set<int>> promoted(static_cast<std::size_t>(top) + 1);
    std::mt19937 random(seed);
    std::vector<std::pair<int, int>> running;  // number, rung
    int drawn = 0, promotions = 0;
    const auto get_job = [&]() -> std::optional<std::pair<int, int>> {
      for (int k = top - 1; k >= 0; --k) {
        auto rung = rungs[static_cast<std::size_t>(k)];
        std::sort(rung.begin(), rung.end());
        rung.resize(rung.size() / static_cast<std::size_t>(eta));
        for (const auto& [loss, number] : rung)
          if (promoted[static_cast<std::size_t>(k)].insert(number).second) return std::pair(number, k + 1);
      }
      if (drawn == trials) return std::nullopt;
      return std::pair(drawn++, 0);
    };
    while (true) {
      while (static_cast<int>(running.size()) < places) {
        const std::optional<StudyTrial> trial = asha->next(static_cast<int>(running.size()));
        const auto job = get_job();
        REQUIRE(trial.has_value() == job.has_value());
        if (!job) break;
        promotions += job->second > 0;
        REQUIRE(std::stoi(trial->name) == job->first);
        REQUIRE(trial->until->count == std::pow(eta, job->second + rate));
        CHECK(trial->set.front() == "schedule.budget=64ba");
        running.push_back(*job);
      }
      if (running.empty()) break;
      const std::size_t i = random() % running.size();
      const auto [number, rung] = running[i];
      StudyTrial trial{.name = std::to_string(number),
                       .run = "",
                       .set = {},
                       .until = Duration{std::pow(eta, rung + rate), Duration::Unit::steps},
                       .labels = {},
                       .panel = "",
                       .series = ""};
      const double value = scattered(trial);
      rungs[static_cast<std::size_t>(rung)].emplace_back(value, number);
      char name[16];
      std::snprintf(name, sizeof name, "%04d", number);
      trial.name = name;
      asha->report(outcome(trial, value));
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    }
    CHECK(drawn == trials);
    CHECK(promotions >= trials / eta);
    CHECK(asha->result().best.size() == 1);
  }
}

TEST_CASE("what failed or diverged goes to no further rung, and counts as one of its rung", "[study]") {
  for (const char* name : {"asha", "hyperband"}) {
    INFO(name);
    const std::string trials = std::string(name) == "asha" ? "trials = 27\n" : "";
    const auto of_27 = study(name, space + "max_budget = \"27ep\"\n" + trials);
    std::map<std::string, double> furthest;
    play(*of_27, 3, 5, [&](const StudyTrial& trial) {
      furthest[trial.name] = trial.until->count;
      return std::stoul(trial.name) % 2 == 0 ? std::nan("") : scattered(trial);
    });
    for (const auto& [trial, count] : furthest)
      if (std::stoul(trial) % 2 == 0 && std::stoul(trial) < 27) CHECK(count == 1.0);
  }
}

TEST_CASE(
    "a study that is asked and told the same gives the same, and one that gives nothing has not changed",
    "[study]") {
  const std::map<std::string, std::string> options = {
      {"grid", space + "seeds = 2\n"},
      {"random", space + "trials = 9\nseed = 4\n"},
      {"cfo", space + "trials = 30\nseed = 4\n"},
      {"blendsearch", space + "trials = 30\nseed = 4\ncost = \"steps\"\n"},
      {"asha", space + "max_budget = \"27ep\"\ntrials = 20\n"},
      {"hyperband", space + "max_budget = \"9ep\"\n"},
      {"flaml", "learners = [{ name = \"run\", " + space.substr(0, space.size() - 1) +
                    " }]\ntrials = 9\nseed = 4\ncost = \"steps\"\n"}};
  const auto value = [](const StudyTrial& trial) {
    double sum = trial.until ? trial.until->count : 0.0;
    for (const std::string& change : trial.set)
      for (const char c : change) sum = std::fmod(sum * 31 + c, 997);
    return sum;
  };
  for (const auto& [name, text] : options) {
    INFO(name);
    const auto first = study(name, text), second = study(name, text);
    const auto calls = play(*first, 3, 9, value);
    CHECK((play(*second, 3, 9, value) == calls));
    CHECK(calls.size() > 8);
    CHECK_FALSE(first->next(0).has_value());
    CHECK_FALSE(first->next(0).has_value());
    const StudyResult result = first->result();
    REQUIRE(result.best.size() == 1);
    for (const ResultTable& table : result.tables)
      for (const auto& row : table.rows) CHECK(row.size() == table.columns.size());
    const std::string picture = cli::svg(name, result.plots);
    CHECK(picture.find("nan") == std::string::npos);
    CHECK(picture.find("inf") == std::string::npos);
  }
}

TEST_CASE(
    "what random search draws is a function of seed and number, even in the logarithm, within its bounds",
    "[study]") {
  const std::string wide =
      "space = [{ key = \"optimizer.lr\", low = 1e-4, high = 1.0, log = true }, { key = \"model.width\", low "
      "= 1, high = 8, "
      "integer = true }, { key = \"model.type\", choices = [\"a\", \"b\", \"c\"] }]\n";
  const auto draw = [&](int trials, const std::string& more) {
    const auto random = study("random", wide + "trials = " + std::to_string(trials) + "\n" + more);
    std::vector<std::vector<std::pair<std::string, std::string>>> all;
    while (const std::optional<StudyTrial> trial = random->next(0)) all.push_back(trial->labels);
    return all;
  };
  const auto few = draw(50, ""), many = draw(4000, "");
  CHECK((std::vector(many.begin(), many.begin() + 50) == few));
  CHECK_FALSE((draw(50, "seed = 1\n") == few));
  std::vector<int> decades(4, 0), widths(9, 0);
  std::map<std::string, int> types;
  for (const auto& each : many) {
    const double lr = std::stod(each[0].second);
    REQUIRE((lr >= 1e-4 && lr <= 1.0));
    ++decades[static_cast<std::size_t>(std::clamp(std::floor(std::log10(lr)) + 4, 0.0, 3.0))];
    ++widths.at(std::stoul(each[1].second));
    ++types[each[2].second];
  }
  for (const int count : decades) CHECK(std::abs(count - 1000) < 120);  // four times the deviation
  for (std::size_t width = 1; width <= 8; ++width) CHECK(std::abs(widths[width] - 500) < 90);
  for (const auto& [type, count] : types) CHECK(std::abs(count - 1333) < 130);
}

TEST_CASE("a space that makes no sense is refused with its key", "[study]") {
  const auto refusal = [](const std::string& entry) {
    try {
      study("random", "trials = 1\nspace = [{ key = \"optimizer.lr\", " + entry + " }]\n");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal("low = 1.0").find("`optimizer.lr` has one of `low` and `high`") != std::string::npos);
  CHECK(refusal("log = true").find("`optimizer.lr` needs its values") != std::string::npos);
  CHECK(refusal("low = 1.0, high = 1.0").find("not below") != std::string::npos);
  CHECK(refusal("low = 0.0, high = 1.0, log = true").find("not above 0") != std::string::npos);
  CHECK(refusal("low = 0.5, high = 2.0, integer = true").find("whole numbers") != std::string::npos);
  CHECK(refusal("low = 0.5, high = 2.0").empty());
}

TEST_CASE("a search from a cheap point begins at `start`, else with the run file's value, else in the middle",
          "[study]") {
  Table optimizer, run;
  optimizer.set("lr", 0.05);
  optimizer.set("steps", 700);
  run.set("optimizer", optimizer);
  const auto first = [&](const std::string& keys, const Table& of_run) {
    return study("cfo", "trials = 3\nspace = [{ " + keys + " }]\n", of_run)->next(0)->labels.front().second;
  };
  const std::string range = "key = \"optimizer.lr\", low = 1e-4, high = 1.0, log = true";
  const std::string whole = "key = \"optimizer.steps\", low = 1, high = 9, integer = true";
  CHECK(first(range + ", start = 0.5", run) == "0.5");
  CHECK(first(range, run) == "0.05");
  CHECK(first(range, {}) == "0.01");
  CHECK(first(whole, run) == "5");  // 700 is none of its values
  CHECK(first("key = \"optimizer.lr\", values = [0.1, 0.05, 1]", run) == "0.05");
  Table trainer;
  trainer.set("max_duration", Value("30ep"));
  run.set("trainer", trainer);
  const std::string epochs = "key = \"trainer.max_duration\", unit = \"ep\", ";
  CHECK(first(epochs + "low = 2, high = 200, log = true, integer = true", run) == "30ep");
  CHECK(first(epochs + "low = 2, high = 200, log = true, integer = true, start = 2", run) == "2ep");
  CHECK(first("key = \"trainer.max_duration\", unit = \"ba\", low = 2, high = 200, integer = true", run) ==
        "101ba");
  CHECK(first(epochs + "values = [10, 30]", run) == "30ep");
  CHECK_THROWS_WITH(first(epochs + "choices = [\"10\", \"30\"]", run), Catch::Contains("which numbers have"));
  for (const auto& [name, options] : std::map<std::string, std::string>{
           {"random", "trials = 9\n"}, {"grid", ""}, {"cfo", "trials = 9\n"}}) {
    const auto drawn =
        study(name, options + "goal = \"min\"\nspace = [{ " + epochs + "low = 2, high = 200 }]\n");
    std::vector<std::pair<StudyTrial, TrialOutcome>> all;
    while (const auto trial = drawn->next(0)) {
      CHECK_THAT(trial->set.back(), Catch::StartsWith("trainer.max_duration=") && Catch::EndsWith("ep"));
      all.emplace_back(*trial, outcome(*trial, std::abs(number_in(*trial, "trainer.max_duration") - 40)));
      drawn->report(all.back().second);
    }
    CHECK(drawn->result().plots[0].series[0].points.size() == all.size());
    const auto other = study("cfo", "trials = 99\nspace = [{ " + epochs + "low = 2, high = 200 }]\n");
    for (const auto& [trial, told] : all) CHECK(other->adopt(trial, told));
  }
  CHECK(first("key = \"optimizer.lr\", values = [0.1, 0.05, 1], start = 1", run) == "1");
  CHECK(first("key = \"model.type\", choices = [\"mlp\", \"linear\"]", run) == "mlp");
  CHECK_THROWS_WITH(first(range + ", start = 2", run),
                    Catch::Contains("start = 2, which is not from low to high"));
  CHECK_THROWS_WITH(first(whole + ", start = 2.5", run),
                    Catch::Contains("start = 2.5, and whole numbers only"));
  CHECK_THROWS_WITH(first("key = \"optimizer.lr\", values = [0.1], start = 1", run),
                    Catch::Contains("start = 1, which is none of its values"));
  const Table with_list = [] {
    Table metric, all;
    metric.set("k", 3);
    all.set("metrics", Array{Value(metric)});
    return all;
  }();
  CHECK(first("key = \"metrics.0.k\", low = 1, high = 9, integer = true", with_list) == "3");
  CHECK_THROWS_WITH(first("key = \"a\", values = [1, 2], log = true", run),
                    Catch::Contains("leave them out"));
  CHECK_THROWS_WITH(first("key = \"a\", low = -1e308, high = 1e308", run),
                    Catch::Contains("bring low and high closer"));
  CHECK_THROWS_WITH(first("key = \"a\", values = [1] }, { key = \"a\", values = [2]", run),
                    Catch::Contains("`a` is there twice"));
  CHECK_THROWS_WITH(first("key = \"model.type\", choices = [\"mlp\"], start = 1", run),
                    Catch::Contains("choices: the first of them is the start"));
}

namespace {

const std::string two_learners =
    "learners = [{ name = \"near\", run = \"/near.toml\", space = [{ key = \"model.x\", low = 0.0, high = "
    "1.0, start = "
    "0.1 }, { key = \"model.width\", low = 4, high = 4096, log = true, integer = true, start = 4 }] }, { "
    "name = "
    "\"far\", run = \"/far.toml\", cost = 2.0, space = [{ key = \"model.x\", low = 0.0, high = 1.0, start = "
    "0.5 }] }]\n"
    "goal = \"min\"\n";

std::string text_in(const StudyTrial& trial, const std::string& key) {
  for (const std::string& change : trial.set)
    if (change.starts_with(key + "=")) return change.substr(key.size() + 1);
  return "";
}

double share_of(const std::string& take) {
  int first = 0, last = 0, folds = 1;
  if (std::sscanf(take.c_str(), "folds %d to %d of %d", &first, &last, &folds) != 3) return 1.0;
  return (last - first + 1.0) / folds;
}

/// A trial of flaml, and what came of it.
struct Judged {
  StudyTrial trial;
  double loss = 0.0, begun = 0.0, seconds = 0.0;
};

/// Plays flaml to its end on data of that many samples: a trial takes a hundredth of a second, more with its width and its
/// samples, and no longer than it may. One that is as long as that fails.
std::vector<Judged> judged(Study& study, std::int64_t rows,
                           const std::function<double(const StudyTrial&)>& loss) {
  std::vector<Judged> all;
  double now = 0.0;
  while (const std::optional<StudyTrial> trial = study.next(0)) {
    const double share = share_of(text_in(*trial, "data.train.take"));
    double seconds = 0.01 + 1e-5 * std::max(4.0, number_in(*trial, "model.width")) *
                                static_cast<double>(rows) * share / 1000;
    const auto most = Duration::parse(text_in(*trial, "trainer.max_wall_time"));
    const bool is_cut = most && seconds >= most->count;
    if (is_cut) seconds = most->count;
    const double value = loss(*trial);
    all.push_back({*trial, value, now, seconds});
    now += seconds;
    TrialOutcome told{.trial = trial->name,
                      .until = {},
                      .metrics = {{"val/loss", value}},
                      .error = {},
                      .seconds = seconds,
                      .elapsed = now,
                      .rows = rows,
                      .values = 20};
    if (is_cut) told.end = TrialOutcome::End::failed;
    study.report(told);
    REQUIRE(all.size() < 100'000);
  }
  return all;
}

double bowl(const StudyTrial& trial) {
  const double at = number_in(trial, "model.x") - 0.7,
               width = std::log(std::max(4.0, number_in(trial, "model.width")) / 64.0);
  return 0.1 + at * at + 0.01 * width * width + (trial.run == "/far.toml" ? 0.05 : 0.0);
}

}  // namespace

TEST_CASE("flaml judges by folds where the data is small, and trains the best on all samples at last",
          "[study]") {
  const auto flaml = study("flaml", two_learners + "time = \"20s\"\n");
  std::map<std::string, std::vector<double>> losses;  // by number
  const std::vector<Judged> all = judged(*flaml, 1500, [&](const StudyTrial& trial) {
    const double value = bowl(trial) + 0.001 * static_cast<double>(trial.name.back() - '0');
    if (trial.name != "best") losses[trial.name.substr(0, 4)].push_back(value);
    return value;
  });
  std::set<std::string> tried;
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    const StudyTrial& trial = all[i].trial;
    const std::string fold = std::to_string(i % 5);
    INFO(call_of(trial));
    const std::string number = std::to_string(i / 5);
    CHECK(trial.name == std::string(4 - number.size(), '0') + number + "/fold " + fold);
    CHECK(text_in(trial, "data.val.take") == "fold " + fold + " of 5");
    CHECK(text_in(trial, "data.train.take") == "all but fold " + fold + " of 5");
    if (i % 5 == 0) CHECK(tried.insert(trial.run + trial.set[0] + trial.set[1]).second);
  }
  const StudyTrial& last = all.back().trial;
  CHECK((last.name == "best" && text_in(last, "data.train.take") == "first 100%" &&
         text_in(last, "data.val.take").empty()));
  CHECK(all.back().begun >= 20.0);
  CHECK(all.back().begun < 21.0);
  std::string best;
  double least = 9.0;
  for (const auto& [number, values] : losses) {
    REQUIRE(values.size() == 5);
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / 5;
    if (mean < least) best = number;
    least = std::min(least, mean);
  }
  const StudyResult result = flaml->result();
  CHECK(result.tables[0].rows[0][0].text == best);
  CHECK(result.tables[0].rows.size() == losses.size());
  CHECK_THAT(*result.tables[0].rows[0][4].value, Catch::WithinAbs(least, 1e-12));
  CHECK(least < 0.11);  // of 0.10 and the folds' 0.002
  REQUIRE(result.best.size() == 1);
  CHECK(result.best[0].trial.set[0] == last.set[0]);
  CHECK(text_in(result.best[0].trial, "data.train.take").empty());
}

TEST_CASE(
    "flaml begins with few samples of much data, and takes four times as many where nothing better comes",
    "[study]") {
  for (const double gain : {0.05, -0.05}) {  // more samples may make errors larger, too
    const auto flaml = study("flaml", two_learners + "time = \"60s\"\nretrain = \"none\"\n");
    const std::vector<Judged> all = judged(*flaml, 200'000, [&](const StudyTrial& trial) {
      return bowl(trial) + gain * (1.0 - share_of(text_in(trial, "data.train.take")));
    });
    // The first trial finds out how large the data is, within a twentieth of the time, and is given again.
    CHECK((all[0].trial.name == "0000/fold 0" && text_in(all[0].trial, "trainer.max_wall_time") == "3s"));
    CHECK(all[1].trial.name == "0000");
    struct Learner {
      double share = 0.0, least = 9.0, cost = 0.0, since = 0.0, x = 0.0;
      std::string incumbent;
    };
    std::map<std::string, Learner> learners;
    int grown = 0;
    for (std::size_t i = 1; i < all.size(); ++i) {
      const StudyTrial& trial = all[i].trial;
      INFO(call_of(trial));
      CHECK(text_in(trial, "data.val.take") == "folds 0 to 19 of 200");
      const double share = share_of(text_in(trial, "data.train.take")), x = number_in(trial, "model.x");
      Learner& of = learners[trial.run];
      const std::string values = text_in(trial, "model.x") + " " + text_in(trial, "model.width");
      if (of.share == 0.0) CHECK(share == 0.05);
      CHECK(share >= of.share);
      if (of.share > 0.0 && share > of.share) {
        ++grown;
        CHECK(values == of.incumbent);
        CHECK((share == 0.2 || share == 0.9));
        if (trial.run == "/near.toml") CHECK(of.since >= 4.0 * of.cost);  // the other has nothing left to try
        of.least = 9.0;
      } else if (of.share > 0.0 && share < 0.9 && trial.run == "/far.toml") {
        CHECK((std::abs(x - of.x) > 0.0999 || x == 0.0 || x == 1.0));  // steps do not shorten yet
      }
      of.share = share;
      of.since += all[i].seconds;
      if (of.least > all[i].loss) {
        of.least = all[i].loss;
        of.incumbent = values;
        of.cost = all[i].seconds;
        of.since = 0.0;
        of.x = x;
      }
      const double left = 60.0 - all[i].begun, may = share < 0.9 ? left / 2 * share / 0.9 : left;
      CHECK(number_in(trial, "trainer.max_wall_time") >= std::min(may, 0.1));
      CHECK(number_in(trial, "trainer.max_wall_time") <= std::max(may, 0.1) + 0.11);
    }
    CHECK(grown >= 2);
    CHECK(all.back().begun + all.back().seconds <= 60.2);
  }
}

TEST_CASE("flaml ends early enough to train the best on all samples within its time", "[study]") {
  for (const char* time : {"2s", "5s", "20s"}) {
    INFO(time);
    const double seconds = Duration::parse(time)->count;
    const auto flaml = study("flaml", two_learners + "retrain = \"budget\"\ntime = \"" + time + "\"\n");
    const std::vector<Judged> all = judged(*flaml, 2'000'000, bowl);
    CHECK(all.back().trial.name == "best");
    CHECK(all.back().begun < seconds);
    CHECK(all.back().begun + all.back().seconds <= seconds * 1.02 + 0.1);  // what the least trial takes
    CHECK(all.back().begun + all.back().seconds >= 0.75 * seconds);
  }
  // No trial may take the time of the last one, which is a quarter of a second at least.
  const auto large =
      study("flaml", two_learners + "retrain = \"budget\"\ntime = \"60s\"\nresampling = \"folds\"\n");
  const std::vector<Judged> whole = judged(*large, 6'000'000, bowl);
  for (std::size_t i = 5; i + 1 < whole.size(); ++i)
    CHECK(number_in(whole[i].trial, "trainer.max_wall_time") <= 60.0 - whole[i].begun - 0.14);
  CHECK(whole.back().begun + whole.back().seconds <= 60.0 * 1.02);
  // Where costs are steps, time ends the search all the same.
  const auto flaml = study("flaml", two_learners + "retrain = \"none\"\ncost = \"steps\"\ntime = \"5s\"\n");
  const std::vector<Judged> all = judged(*flaml, 1500, bowl);
  CHECK(all.back().begun < 5.0);
  CHECK(all.back().begun + all.back().seconds > 4.5);
}

TEST_CASE("flaml: where one fold fails, the configuration does, and its other folds are not tried",
          "[study]") {
  const auto flaml =
      study("flaml", two_learners + "trials = 6\nretrain = \"none\"\nresampling = \"folds\"\n");
  std::map<std::string, int> folds;
  judged(*flaml, 1500, [&](const StudyTrial& trial) {
    ++folds[trial.name.substr(0, 4)];
    return trial.name == "0002/fold 1" ? std::nan("") : trial.name == "0004/fold 0" ? HUGE_VAL : 0.5;
  });
  CHECK((folds == std::map<std::string, int>{
                      {"0000", 5}, {"0001", 5}, {"0002", 2}, {"0003", 5}, {"0004", 1}, {"0005", 5}}));
  const StudyResult result = flaml->result();
  CHECK(result.tables[0].rows[3][4].text == "0.5000");
  CHECK((result.tables[0].rows[4][4].text == "failed" && result.tables[0].rows[5][4].text == "failed"));
}

TEST_CASE("flaml makes an ensemble of the best on all samples but what is held out, within its time",
          "[study]") {
  const auto run = [](const StudyTrial& trial) {
    Table model, data, split, whole;
    model.set("type", "mlp");
    model.set("hidden", Value(Array{Value(number_in(trial, "model.width"))}));
    model.set("dropout", Value(Table()));
    for (const char* const key : {"batch_size", "micro_batch_size"})
      split.set(key, 32 + std::lround(100 * number_in(trial, "model.x")));
    data.set("type", trial.run == "/near.toml" ? "csv" : "idx");
    data.set("train", Value(split));
    data.set("val", Value(split));
    whole.set("model", Value(model));
    whole.set("data", Value(data));
    return whole;
  };
  const auto flaml = study("flaml", two_learners + "ensemble = 3\ntime = \"60s\"\n", run);
  std::map<std::string, double> losses;
  const std::vector<Judged> all = judged(*flaml, 200'000, [&](const StudyTrial& trial) {
    const double loss = bowl(trial);
    const bool is_full = text_in(trial, "data.train.take") == "folds 20 to 199 of 200";
    if (trial.run == "/near.toml" && is_full && trial.name < "a") losses[trial.name] = loss;
    return loss;
  });
  const Judged& ensemble = all[all.size() - 2];
  CHECK(all.back().trial.name == "best");
  REQUIRE(ensemble.trial.name == "ensemble");
  CHECK(ensemble.begun >= 57.0);
  CHECK(ensemble.begun < 60.0);
  CHECK(text_in(ensemble.trial, "data.val.take") == "folds 0 to 19 of 200");
  CHECK(text_in(ensemble.trial, "data.train.take") == "folds 20 to 199 of 200");
  CHECK(text_in(ensemble.trial, "data.train.batch_size") == "1");
  // The best three of one learner: the other's data is of another type.
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [name, loss] : losses) order.emplace_back(loss, name);
  std::ranges::sort(order);
  std::string from;
  for (std::size_t i = 0; i < 3; ++i) from += (i == 0 ? "" : ", ") + ("\"../" + order.at(i).second + "\"");
  const std::string model = text_in(ensemble.trial, "model");
  INFO(model);
  CHECK(model.starts_with("{ type = \"ensemble\", members = [{ type = \"mlp\", hidden = ["));
  CHECK(model.ends_with("from = [" + from + "] }"));
  CHECK(model.find("dropout") == std::string::npos);
  CHECK_FALSE(flaml->next(0).has_value());
}

TEST_CASE("flaml takes an error of exactly 0 for the best, and NaN for none", "[study]") {
  const auto flaml = study("flaml", two_learners + "trials = 12\nresampling = \"own\"\n");
  const std::vector<Judged> all = judged(*flaml, 1500, [](const StudyTrial& trial) {
    const int number = std::stoi(trial.name);
    return number == 5 ? 0.0 : number % 3 == 1 ? std::nan("") : 0.5;
  });
  CHECK(all.size() == 12);
  for (const Judged& each : all) CHECK(text_in(each.trial, "data.train.take").empty());
  const StudyResult result = flaml->result();
  CHECK(result.tables[0].rows[0][0].text == "0005");
  CHECK(result.tables[0].rows[11][4].text == "failed");
  CHECK(result.best[0].trial.set[0] == all[5].trial.set[0]);
}

TEST_CASE("a search goes on with what another one found, tries nothing twice, and begins at the best",
          "[study]") {
  const std::string one =
      "goal = \"min\"\nspace = [{ key = \"model.x\", low = 0.0, high = 1.0, start = 0.1 }, { key = "
      "\"model.type\", choices = "
      "[\"a\", \"b\"] }]\n";
  std::vector<std::pair<StudyTrial, TrialOutcome>> known;
  std::set<std::string> tried, names;
  const auto go_on = [&](const std::string& type, const std::string& options, int trials) {
    const auto next = study(type, one + options);
    for (const auto& [trial, told] : known) CHECK(next->adopt(trial, told));
    StudyTrial first;
    for (int i = 0; i < trials; ++i) {
      const std::optional<StudyTrial> trial = next->next(0);
      REQUIRE(trial);
      if (i == 0) first = *trial;
      INFO(type << ": " << call_of(*trial));
      CHECK(tried.insert(trial->set[0] + trial->set[1]).second);
      CHECK(names.insert(trial->name).second);
      known.emplace_back(*trial, outcome(*trial, bowl(*trial)));
      next->report(known.back().second);
    }
    CHECK_FALSE(next->next(0));
    CHECK(next->result().tables[0].rows.size() == known.size());
    return first;
  };
  const auto best = [&] {
    return std::ranges::min_element(known, {},
                                    [](const auto& each) { return each.second.metrics.at("val/loss"); })
        ->first;
  };
  go_on("random", "trials = 4\n", 4);
  double at = number_in(best(), "model.x");
  CHECK(std::abs(number_in(go_on("cfo", "trials = 24\n", 20), "model.x") - at) < 0.3);
  go_on("blendsearch", "trials = 40\ncost = \"steps\"\n", 16);
  // Trials of other run files, other changes, other lengths or without a number are none of a search's.
  const auto other = study("cfo", one + "trials = 60\n");
  StudyTrial trial = known[0].first;
  trial.run = "/other.toml";
  CHECK_FALSE(other->adopt(trial, known[0].second));
  trial = known[0].first;
  trial.set.push_back("optimizer.lr=1");
  CHECK_FALSE(other->adopt(trial, known[0].second));
  trial = known[0].first;
  trial.set[0] = "model.x=1.5";
  CHECK_FALSE(other->adopt(trial, known[0].second));
  trial = known[0].first;
  trial.until = Duration::parse("2ep");
  CHECK_FALSE(other->adopt(trial, known[0].second));
  const auto seeded = study("cfo", one + "trials = 60\nset = [\"run.seed=3\"]\n");
  CHECK_FALSE(seeded->adopt(known[0].first, known[0].second));
  trial = known[0].first;
  trial.set.insert(trial.set.begin(), "run.seed=4");
  CHECK_FALSE(seeded->adopt(trial, known[0].second));
  trial.set.front() = "run.seed=3";
  CHECK(seeded->adopt(trial, known[0].second));
  trial = known[0].first;
  trial.name = "tune/3";
  CHECK_FALSE(other->adopt(trial, known[0].second));
  trial = known[0].first;
  trial.name = "0070";
  CHECK(other->adopt(trial, known[0].second));
  CHECK_FALSE(other->adopt(trial, known[0].second));
  CHECK(other->next(0)->name == "0071");
  // flaml judges them in another way; its learner begins at the best of them.
  const auto flaml = study("flaml", "trials = 5\nlearners = [{ name = \"run\", " +
                                        one.substr(one.find("space"), one.size() - one.find("space") - 1) +
                                        " }]\ngoal = \"min\"\n");
  for (const auto& [each, told] : known) CHECK_FALSE(flaml->adopt(each, told));
  const StudyTrial first = *flaml->next(0);
  CHECK((first.set[0] == best().set[0] && first.set[1] == best().set[1]));
}

TEST_CASE("flaml refuses what has no end, learners of one name, or fewer samples than folds", "[study]") {
  const auto few = study("flaml", two_learners + "trials = 5\n");
  CHECK_THROWS_WITH(judged(*few, 3, bowl), Catch::Contains("3 samples, which make no 5 folds"));
  CHECK_THROWS_WITH(study("flaml", two_learners), Catch::Contains("there is no end"));
  CHECK_THROWS_WITH(study("flaml", "learners = []\ntrials = 1\n"), Catch::Contains("there is no learner"));
  CHECK_THROWS_WITH(study("flaml", two_learners + "time = \"3ep\"\n"),
                    Catch::Contains("time = \"3ep\" is no time"));
  std::string twice = two_learners;
  twice.replace(twice.find("far"), 3, "near");
  CHECK_THROWS_WITH(study("flaml", twice + "trials = 1\n"), Catch::Contains("two are called \"near\""));
}

TEST_CASE("the potential of a cascade is the largest ratio without loss, whatever a smaller one lost",
          "[study]") {
  // Errors .08 of the parent and .079, .082, .086, .084, .10 at these ratios: .8 where .005 more are no loss.
  const std::unique_ptr<Study> cascade =
      study("cascade", "ratios = [0.2, 0.4, 0.6, 0.8, 0.9]\nseeds = 1\ndelta = 0.005\n");
  const std::map<std::string, double> right = {{"dense/0", .92},          {"magnitude/0.2/0", .921},
                                               {"magnitude/0.4/0", .918}, {"magnitude/0.6/0", .914},
                                               {"magnitude/0.8/0", .916}, {"magnitude/0.9/0", .90}};
  const std::vector<std::string> calls =
      play(*cascade, 2, 1, [&](const StudyTrial& trial) { return right.at(trial.name); });
  REQUIRE(calls.size() == 2 * right.size());
  CHECK(cascade->result().tables[1].rows[0][1].value == Approx(.8));
}

TEST_CASE("a picture of a logarithm without a finite value has axes all the same", "[study]") {
  const ResultPlot plot{.title = "lr",
                        .x_label = "lr",
                        .y_label = "loss",
                        .places = {},
                        .log_x = true,
                        .series = {{.name = "", .points = {{1e-3, std::nan(""), 0.0}}, .joined = false}}};
  CHECK_THAT(cli::svg("all diverged", {plot}), Catch::EndsWith("</svg>\n"));
}

TEST_CASE("learning curves are means of seeds at the steps that all have, with twice their standard error",
          "[study]") {
  const test::Folder folder;
  const auto line = [](int step, double value) {
    return "{\"step\": " + std::to_string(step) + ", \"values\": {\"val/loss\": " + std::to_string(value) +
           "}}\n";
  };
  const auto trial = [](const std::string& name, const std::string& series) {
    StudyTrial made;
    made.name = name;
    made.panel = "val/loss";
    made.series = series;
    return made;
  };
  folder.write("a/metrics.jsonl", line(1, 5.0) + line(2, 3.0) + line(3, 1.0));
  folder.write("b/metrics.jsonl", line(1, 7.0) + line(3, 2.0));
  folder.write("c/metrics.jsonl", line(1, 4.0) + line(2, 4.5));
  const std::vector<cli::Finished> trials = {{trial("a", "sgd"), {}, folder / "a"},
                                             {trial("b", "sgd"), {}, folder / "b"},
                                             {trial("c", "adam"), {}, folder / "c"}};
  const std::vector<ResultPlot> plots = cli::learning_curves(trials, "val/loss", {{"", trial("c", "adam")}});
  REQUIRE(plots.size() == 1);
  CHECK(plots[0].title == "val/loss while it was trained");
  REQUIRE(plots[0].series.size() == 2);
  CHECK(plots[0].series[0].name == "adam");  // the best comes first
  CHECK(plots[0].series[0].bold);
  const std::vector<ResultPlot::Point>& points = plots[0].series[1].points;
  REQUIRE(points.size() == 2);
  CHECK((points[0].x == 1.0 && points[0].y == 6.0 && points[1].x == 3.0 && points[1].y == 1.5));
  CHECK(points[0].half == Approx(2.0));  // of 5 and 7: deviation sqrt 2, by sqrt 2
  CHECK(points[1].half == Approx(1.0));
}

TEST_CASE("a ledger gives back what was written, less a line that a kill cut short", "[study]") {
  const test::Folder folder;
  const std::string path = folder / "ledger.jsonl";
  const cli::TrialKey key{"a \"b\"", "2ep", "d1"};
  const TrialOutcome end{.trial = key.trial,
                         .until = Duration::parse("2ep"),
                         .end = TrialOutcome::End::failed,
                         .metrics = {{"val/loss", 0.1}, {"val/other", std::nan("")}},
                         .error = "two\nlines",
                         .seconds = 1.5,
                         .cpu_seconds = 0.75,
                         .steps = 12,
                         .elapsed = 3.25,
                         .rows = 150,
                         .values = 4};
  {
    cli::StudyLedger ledger(path);
    CHECK(ledger.entries().empty());
    ledger.write({cli::LedgerEntry::What::start, key, {}, "/run.toml", {"optimizer.lr=0.1"}});
    ledger.write({cli::LedgerEntry::What::end, key, end, {}, {}});
    CHECK_THROWS_WITH(cli::StudyLedger(path), Catch::Contains("another process runs the study"));
  }
  const std::string whole = test::read_file(path);
  for (const std::size_t cut : {std::size_t{1}, std::size_t{20}}) {
    std::ofstream(path, std::ios::binary) << whole << whole.substr(0, cut);
    cli::StudyLedger ledger(path);
    REQUIRE(ledger.entries().size() == 2);
    const StudyTrial begun = ledger.entries()[0].trial();
    CHECK(ledger.entries()[0].key == key);
    CHECK((begun.name == key.trial && begun.until == end.until && begun.run == "/run.toml" &&
           begun.set == std::vector<std::string>{"optimizer.lr=0.1"}));
    const cli::LedgerEntry& told = ledger.entries()[1];
    CHECK((told.key == key && told.outcome.end == end.end && told.outcome.error == end.error &&
           told.outcome.seconds == 1.5 && told.outcome.cpu_seconds == 0.75 && told.outcome.steps == 12 &&
           told.outcome.elapsed == 3.25 && told.outcome.rows == 150 && told.outcome.values == 4));
    CHECK(told.outcome.metrics.at("val/loss") == 0.1);
    CHECK(std::isnan(told.outcome.metrics.at("val/other")));
    CHECK(test::read_file(path) == whole);
  }
  std::ofstream(path, std::ios::binary) << "{\"start\": 5}\n" << whole;
  CHECK_THROWS_WITH(cli::StudyLedger(path), Catch::Contains(path + ": line 1 is not as it was written"));
}

}  // namespace study_tests
