// What rules do when they fire, refused where it could never be done.
#include <catch2/catch.hpp>

#include "core/runfile/load.hpp"
#include "front/run_files.hpp"

using namespace trainyard;
using Catch::Matchers::Contains;

namespace {

struct SwapOption {
  std::string slot, type;
  std::vector<std::string> set;
  static void describe(Fields<SwapOption>& m) {
    m.option("slot", &SwapOption::slot, "the slot").required();
    m.option("type", &SwapOption::type, "the plugin");
    m.option("set", &SwapOption::set, "its options");
  }
};

/// Of rule.hpp, which brings LibTorch.
struct RuleOptions {
  std::string action = "report";
  std::optional<SwapOption> swap;
  static void describe(Fields<RuleOptions>& m) {
    m.option("action", &RuleOptions::action, "when it fires").one_of({"report", "stop", "swap"});
    m.option("swap", &RuleOptions::swap, "what the action swap does");
  }
};

const plugins::Registry& registry() {
  static const plugins::Registry all = [] {
    std::vector<plugins::PluginFile> files = test::registry().files();
    files.push_back(test::plain_file<RuleOptions>("rule", "watchful"));
    files.push_back(test::plain_file("recorder", "trial"));
    return plugins::Registry(std::move(files));
  }();
  return all;
}

/// Findings of the least of run files with `more`, whose first line is the 18th.
std::string findings_of(const std::string& more) {
  const test::Folder folder;
  folder.write("train.csv", "x,label\n");
  const auto run =
      config::resolve(config::load({folder.write("run.toml", test::minimal + more)}, {}, {""}), registry());
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
