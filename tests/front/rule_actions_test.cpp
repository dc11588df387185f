// What rules do when they fire, refused where it could never be done.
#include <catch2/catch.hpp>

#include "core/runfile/load.hpp"
#include "front/run_files.hpp"

namespace rule_actions_tests {

using namespace trainyard;
using Catch::Matchers::Contains;

namespace {

/// Findings of the least of run files with `more`, whose first line is the 18th.
std::string findings_of(const std::string& more) {
  const test::Folder folder;
  folder.write("train.csv", "x,label\n");
  const auto run = config::resolve(config::load({folder.write("run.toml", test::minimal + more)}, {}, {""}),
                                   test::registry());
  CHECK(run.config.has_value() == run.findings.list().empty());
  std::string text = run.findings.text();
  for (std::size_t at = text.find(folder.path()); at != std::string::npos; at = text.find(folder.path()))
    text.erase(at, folder.path().size() + 1);
  return text;
}

std::string rule(const std::string& swap) {
  return "[[rules]]\ntype = \"watchful\"\naction = \"swap\"\nswap = { " + swap + " }\n";
}

}  // namespace

TEST_CASE("the swap of a rule is checked on the run, at its place", "[config][swap][rules]") {
  REQUIRE(std::count(test::minimal.begin(), test::minimal.end(), '\n') == 17);
  CHECK_THAT(findings_of("[[rules]]\ntype = \"watchful\"\naction = \"swap\"\n"),
             Contains("run.toml:20:10: E108 rules[0]: action = \"swap\" needs `swap`"));
  CHECK_THAT(findings_of(rule("slot = \"optimzer\", type = \"adamw\"")),
             Contains("run.toml:21:17: E212 rules[0].swap: the run has no slot \"optimzer\"") &&
                 Contains("did you mean `optimizer`?"));
  CHECK_THAT(findings_of(rule("slot = \"optimizer\", type = \"adam2\"")),
             Contains("run.toml:21:37: E301 rules[0].swap: no optimizer plugin is called \"adam2\""));
  CHECK_THAT(
      findings_of(rule("slot = \"optimizer\", type = \"adamw\", set = [\"lr=0.1\", \"momentum=0.9\"]")),
      Contains("run.toml:21:63: E104 rules[0].swap: unknown key `momentum`"));
  CHECK_THAT(findings_of(rule("slot = \"optimizer\", set = [\"lr=-1\"]")),
             Contains("run.toml:21:37: E106 rules[0].swap: optimizer.lr: -1"));
  CHECK_THAT(findings_of(rule("slot = \"optimizer\", set = [\"lr\"]")),
             Contains("run.toml:21:37: E107 rules[0].swap.set: \"lr\" is no assignment"));
  CHECK_THAT(findings_of(rule("slot = \"model\", type = \"cnn\"") +
                         rule("slot = \"loss\", type = \"l3\"").insert(10, "id = \"b\"\n")),
             Contains("rules[0].swap: no model plugin") && Contains("rules[1].swap: no loss plugin"));
}

TEST_CASE("the swap of a rule that fits is let pass, also one of a rule, or one that a plan makes fit",
          "[config][swap][rules]") {
  CHECK(
      findings_of(rule("slot = \"optimizer\", type = \"adamw\", set = [\"lr=0.1\", \"eps=1e-6\"]")).empty());
  CHECK(findings_of(rule("slot = \"schedule\", type = \"cosine\"")).empty());
  // Its own, which would do the same again.
  CHECK(findings_of(rule("slot = \"rules.watchful\", set = [\"action=swap\"]")).empty());
  CHECK(findings_of(rule("slot = \"rules.watchful\", set = [\"action=report\"]")).empty());
  // What a rule does not do is not asked.
  CHECK(findings_of("[[rules]]\ntype = \"watchful\"\nswap = { slot = \"nowhere\" }\n").empty());
  const std::string plan = "[[swap]]\nat = \"1ep\"\nslot = \"optimizer\"\ntype = \"adamw\"\n";
  const std::string later = rule("slot = \"optimizer\", set = [\"eps=1e-6\"]");
  CHECK_THAT(findings_of(later), Contains("unknown key `eps`"));
  CHECK(findings_of(later + plan).empty());
  // One that the plan makes unfit fits the time before.
  CHECK(findings_of(rule("slot = \"optimizer\", set = [\"momentum=0.5\"]") + plan).empty());
}

}  // namespace rule_actions_tests
