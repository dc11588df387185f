// Swaps as they are asked for: planned in a run file, or of a running training.
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>

#include "core/runfile/swap.hpp"
#include "front/run_files.hpp"

namespace swap_request_tests {

using namespace trainyard;
using config::Resolution;

namespace {

const std::string run_file = test::minimal + R"([[hooks]]
type = "ema"
)";

Resolution resolved(const std::string& more = {}) {
  const test::Folder folder;
  folder.write("train.csv", "x,label\n");
  return test::resolve({folder.write("run.toml", run_file + more)});
}

std::string findings_of(const std::string& swap) {
  const Resolution run = resolved("[[swap]]\n" + swap);
  CHECK_FALSE(run.config);
  return run.findings.text();
}

}  // namespace

TEST_CASE("planned swaps follow each other", "[config][swap]") {
  const Resolution run = resolved(R"([[swap]]
at = "1ep"
slot = "optimizer"
type = "adamw"
carry = "fresh"
[[swap]]
at = "2ep"
slot = "optimizer"
eps = 0.5
)");
  INFO(run.findings.text());
  REQUIRE(run.config);
  REQUIRE(run.config->swaps.size() == 2);
  const config::PlannedSwap &first = run.config->swaps[0], &second = run.config->swaps[1];
  CHECK(first.at == *Duration::parse("1ep"));
  CHECK(first.request.type == "adamw");
  CHECK(first.request.carry == config::Carry::fresh);
  CHECK(second.request.type.empty());
  CHECK(second.request.options.find("eps")->as<double>() == 0.5);  // sgd has none
  CHECK(second.request.carry == config::Carry::state);
}

TEST_CASE("planned swaps of different units follow each other as they stand in the file", "[config][swap]") {
  const Resolution run = resolved(R"([[swap]]
at = "5ep"
slot = "optimizer"
type = "adamw"
[[swap]]
at = "3ba"
slot = "optimizer"
eps = 0.5
)");
  INFO(run.findings.text());
  REQUIRE(run.config);  // sgd has no eps
  REQUIRE(run.config->swaps.size() == 2);
  CHECK(run.config->swaps[0].at == *Duration::parse("5ep"));
  CHECK(run.config->swaps[1].at == *Duration::parse("3ba"));
}

TEST_CASE("a watch of several ranks is nothing, and the file is told so", "[config][swap]") {
  const std::string swap = "[[swap]]\nat = \"1ep\"\nslot = \"optimizer\"\nlr = 0.2\n";
  const test::Folder folder;
  folder.write("train.csv", "x,label\n");
  const auto found = [&](const std::string& watch, int ranks) {
    const std::string file = folder.write("run.toml", run_file + swap + watch);
    const Resolution run =
        config::resolve(config::load({file}, {}, {"data", ranks, ranks}), test::registry());
    CHECK(run.config);
    return run.findings.text();
  };
  CHECK_THAT(found("watch = \"9ba\"\n", 2), Catch::Contains("E218 warning: swap[0].watch: several ranks"));
  CHECK(found("watch = \"0ba\"\n", 2).empty());
  CHECK(found("", 2).empty());
  CHECK(found("watch = \"9ba\"\n", 1).empty());
}

TEST_CASE("a planned swap with a wrong key is reported", "[config][swap]") {
  const std::string place = "at = \"1ep\"\nslot = \"optimizer\"\nlr = 2\n";
  CHECK_THAT(findings_of(place + "carry = \"all\""), Catch::Contains("swap[0].carry"));
  CHECK_THAT(findings_of(place + "carry = 1"), Catch::Contains("swap[0].carry"));
  CHECK_THAT(findings_of(place + "watch = \"soon\""), Catch::Contains("swap[0].watch"));
  CHECK_THAT(findings_of(place + "type = 3"), Catch::Contains("swap[0].type"));
  CHECK_THAT(findings_of("slot = \"optimizer\""), Catch::Contains("needs `at`"));
  CHECK_THAT(findings_of("at = \"1ep\"\nslot = \"optimzer\""), Catch::Contains("did you mean `optimizer`?"));
}

TEST_CASE("a change of an unknown slot names the nearest and all there are", "[config][swap]") {
  const Resolution run = resolved();
  REQUIRE(run.config);
  const Table& now = run.config->resolved;
  const auto set = [&](const std::string& assignment) { return config::swaps_of(now, {assignment}); };
  CHECK(set("hooks.ema.decay=0.5").at(0).slot == "hooks.ema");
  CHECK_THROWS_WITH(set("optimzer.lr=0.5"),
                    Catch::Contains("did you mean `optimizer`?") && Catch::Contains("changes only: model, "));
  CHECK_THROWS_WITH(set("hoks.ema.decay=0.5"), Catch::Contains("did you mean `hooks.ema`?"));
  CHECK_THROWS_WITH(set("trainer.precision=fp32"), !Catch::Contains("did you mean"));
  CHECK_THROWS_WITH(set("lr=0.5"), !Catch::Contains("did you mean"));

  const config::Document swapped =
      config::with_swaps(now, {{.slot = "shedule", .type = "cosine"}}, test::registry());
  CHECK_THAT(swapped.findings.text(),
             Catch::Contains("did you mean `schedule`?") && Catch::Contains("its slots are: model, "));
}

}  // namespace swap_request_tests
