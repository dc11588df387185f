// A word that is no verb, where the command line expects one.
#include <iterator>
#include <sstream>

#include <catch2/catch.hpp>

#include "core/cli/arguments.hpp"
#include "core/programs/programs.hpp"

namespace unknown_verb_tests {

using namespace trainyard;

namespace {

/// What is told of a command line that does not parse; empty: of something else than a verb.
std::string told(const std::string& line) {
  cli::Command command("trainyard", "", "");
  cli::CommandLine line_of_verbs;
  cli::add_ctl(command.arguments().verb("ctl", ""), line_of_verbs);
  cli::add_monitor(command.arguments().verb("monitor", ""), line_of_verbs);
  cli::add_runs(command.arguments().verb("runs", ""), line_of_verbs);
  std::istringstream stream("trainyard " + line);
  std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  std::ostringstream out, errors;
  CHECK(command.parse(static_cast<int>(argv.size()), argv.data(), out, errors) == 2);
  const std::string text = errors.str();
  return text.find("there is no verb") == std::string::npos ? "" : text.substr(0, text.size() - 1);
}

const std::string of_ctl =
    "there are: status, set, swap, add, remove, metrics, pause, resume, checkpoint, eval, stop";

}  // namespace

TEST_CASE("a misspelt verb is told with the nearest and all there are", "[cli]") {
  CHECK(told("ctl RUN statsu") ==
        "trainyard ctl: there is no verb \"statsu\"; did you mean `status`?   " + of_ctl);
  CHECK(told("ctl RUN statsu --timeout 3") == told("ctl RUN statsu"));
  CHECK(told("ctl --format json RUN resum") ==
        "trainyard ctl: there is no verb \"resum\"; did you mean `resume`?   " + of_ctl);
  CHECK(told("ctl RUN frobnicate") == "trainyard ctl: there is no verb \"frobnicate\"; " + of_ctl);
  CHECK(told("monitr RUN") ==
        "trainyard: there is no verb \"monitr\"; did you mean `monitor`?   there are: ctl, monitor, runs");
}

TEST_CASE("what is wrong with a verb that is one is left to the parser", "[cli]") {
  for (const char* line : {"", "ctl", "ctl RUN", "ctl RUN set", "ctl RUN status more", "ctl RUN --bogus",
                           "ctl RUN --bogus status", "monitor --bogus"}) {
    INFO(line);
    CHECK(told(line).empty());
  }
}

}  // namespace unknown_verb_tests
