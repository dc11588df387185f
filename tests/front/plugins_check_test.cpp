// What `plugins check` knows without LibTorch: values to try, which tests are meant, what is printed.
#include <catch2/catch.hpp>
#include <sstream>

#include "core/check/report.hpp"
#include "core/check/small_run.hpp"
#include "core/check/values.hpp"

namespace plugins_check_tests {

using namespace trainyard;
using namespace trainyard::check;
using Catch::Matchers::Contains;

namespace {

OptionSpec number(OptionType type, double least, double most) {
  OptionSpec option;
  option.name = "x";
  option.type = type;
  option.minimum = least;
  option.maximum = most;
  return option;
}

}  // namespace

TEST_CASE("random values are those that the manifest allows") {
  std::mt19937_64 dice(3);
  for (const OptionType type : {OptionType::integer, OptionType::number})
    for (const bool open : {false, true}) {
      OptionSpec option = number(type, -2.0, 5.0);
      option.open_minimum = option.open_maximum = open;
      for (int i = 0; i < 1000; ++i) {
        const double value = std::stod(random_value(option, dice));
        CHECK((open ? value > -2.0 && value < 5.0 : value >= -2.0 && value <= 5.0));
      }
    }
  OptionSpec word;
  word.type = OptionType::string;
  CHECK(random_value(word, dice).empty());
  word.choices = {"a", "b"};
  bool seen[2] = {};
  for (int i = 0; i < 40; ++i) seen[random_value(word, dice) == "\"b\""] = true;
  CHECK((seen[0] && seen[1]));
}

TEST_CASE("an option is tried at its bounds and beyond") {
  int taken = 0, refused = 0;
  for (const Trial& trial : trials(number(OptionType::integer, 1.0, 4.0))) {
    if (trial.text == "1" || trial.text == "4") CHECK(trial.allowed);
    if (trial.text == "0" || trial.text == "5" || trial.text == "\"1\"") CHECK_FALSE(trial.allowed);
    (trial.allowed ? taken : refused)++;
  }
  CHECK(taken == 2);
  CHECK(refused > 5);
}

TEST_CASE("a dataset that makes large samples up makes small ones") {
  const plugins::PluginFile tokens =
      plugins::read(std::string(TRAINYARD_PLUGIN_DIR) + "/dataset/libtokens.so").front();
  std::string reasons;
  const std::optional<SmallRun> run = find_run(
      tokens, {.files = {"tokens.bin"}}, [](const SmallRun&) { return ""; }, reasons);
  REQUIRE(run);
  CHECK_THAT(run->options, Contains("vocabulary = 32\n") && !Contains("seq_len"));
}

TEST_CASE("a test is meant by its name, or its group") {
  CHECK(wanted("state.older", {}));
  CHECK(wanted("state.older", {"resume", "state"}));
  CHECK(wanted("state.older", {"state.older"}));
  CHECK_FALSE(wanted("state.older", {"state.old", "stat"}));
  CHECK(unknown_word({"state", "resume.bits"}).empty());
  CHECK(unknown_word({"state", "resum"}) == "resum");
}

TEST_CASE("a report passes where nothing failed or crashed, and says so in each format") {
  Report report{"hook \"a\"", "/a&b/liba.so", {{tests[0].name, Verdict::pass, "", 0.5}}};
  report.results.push_back({tests[1].name, Verdict::warn, "slow", 1.0});
  report.results.push_back({tests[2].name, Verdict::skip, "no", 0.0});
  CHECK(report.passed());
  for (const Verdict verdict : {Verdict::fail, Verdict::crash}) {
    report.results.push_back({tests[3].name, verdict, "x < y & \x01", 0.0});
    CHECK_FALSE(report.passed());
  }
  std::ostringstream junit, json, text;
  print_junit({report}, junit);
  CHECK_THAT(junit.str(), Contains("tests=\"5\" failures=\"1\" errors=\"1\" skipped=\"1\" time=\"1.5\"") &&
                              Contains("x &lt; y &amp; ?") && Contains("/a&amp;b/"));
  print_json({report}, json);
  CHECK_THAT(json.str(), Contains("\"verdict\": \"crash\"") && Contains("\"passed\": false"));
  print_counts(report, text);
  CHECK(text.str() == "hook \"a\": 1 passed, 1 failed, 1 crashed, 1 warned, 1 skipped\n");
}

}  // namespace plugins_check_tests
