// A word that is no verb, where the command line expects one.
#include <catch2/catch.hpp>

#include "core/cli/unknown_verb.hpp"
#include "core/cli/verbs/verb.hpp"

using namespace trainyard;

namespace {

/// What is told of a command line that does not parse; empty: of something else than a verb.
std::string told(const std::string& line) {
  CLI::App app("", "trainyard");
  app.require_subcommand(1);
  cli::CommandLine line_of_verbs;
  for (const auto add : {cli::add_ctl, cli::add_monitor, cli::add_runs}) add(app, line_of_verbs);
  CHECK_THROWS_AS(app.parse(line), CLI::ParseError);
  return cli::unknown_verb(app).value_or("");
}

const std::string of_ctl = "there are: status, set, swap, pause, resume, checkpoint, eval, stop";

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
                           "ctl RUN --bogus status", "monitor RUN more"}) {
    INFO(line);
    CHECK(told(line).empty());
  }
}
