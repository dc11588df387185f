// What is asked of a run, in a checkpoint and in the journal behind it.
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>

#include "core/rundir/as_left.hpp"
#include "core/rundir/ledger.hpp"
#include "core/rundir/manifest.hpp"
#include "core/rundir/run_directory.hpp"
#include "support/files.hpp"

namespace ledger_tests {

using namespace trainyard;
using control::Entry;
using control::Ledger;
using report::JournalEntry;

namespace {

Entry entry(std::int64_t number, std::optional<std::int64_t> step, const std::string& slot,
            const std::string& who = "ctl") {
  Table options;
  options.set("at", Value("${vars.not_a_reference}"));
  return {
      .number = number,
      .who = who,
      .step = step,
      .swaps = {
          {.slot = slot, .type = "x", .options = options, .carry = config::Carry::fresh, .watch = "3ba"}}};
}

JournalEntry line(const Entry& of, std::string_view what, std::int64_t step) {
  return {step, of.who, std::string(what), "", control::details(of)};
}

/// "3 at 54, 1 at 84"
std::string text(const std::vector<Entry>& entries) {
  std::string text;
  for (const Entry& each : entries)
    text += (text.empty() ? "" : ", ") + std::to_string(each.number) +
            (each.step ? " at " + std::to_string(*each.step) : "");
  return text;
}

}  // namespace

TEST_CASE("a folder that cannot be synced is an error of the data") {
  CHECK_THROWS_MATCHES(report::sync_folder("/nowhere/at all"), DataError,
                       Catch::Matchers::Message("cannot open '/nowhere/at all': No such file or directory"));
  CHECK_NOTHROW(report::sync_folder("/tmp"));
}

TEST_CASE("a ledger reads back as it was written", "[ledger]") {
  Ledger ledger{
      .next = 7, .open = {entry(5, {}, "optimizer"), entry(2, 40, "schedule", "config")}, .made = {}};
  ledger.made = {{entry(3, 12, "model.dropout"), 17}, {entry(4, 14, "hooks.ema"), {}}};
  ledger.open[0].swaps.push_back({.slot = "loss", .type = {}, .options = {}});
  const Ledger read = Ledger::from_text(ledger.text(), "here");
  CHECK(read.text() == ledger.text());
  CHECK(read.next == 7);
  CHECK(text(read.open) == "5, 2 at 40");
  REQUIRE(read.open[0].swaps.size() == 2);
  CHECK(read.open[0].swaps[0].options.find("at")->as<std::string>() == "${vars.not_a_reference}");
  CHECK(read.open[0].swaps[0].carry == config::Carry::fresh);
  CHECK(read.open[1].who == "config");
  REQUIRE(read.made.size() == 2);
  CHECK(read.made[0].until == 17);
  CHECK_FALSE(read.made[1].until);
}

TEST_CASE("a ledger that cannot be read is refused, with the reason", "[ledger]") {
  const std::string one = "next = 2\n[[open]]\n", loss = "swap = [{ slot = \"loss\" }]\n";
  const std::pair<std::string, const char*> broken[] = {
      {"next = [", "array"},
      {"next = \"x\"", "no `next`"},
      {"next = 1\nopen = [3]", "one of its entries is no table"},
      {"next = 1\nmade = [\"x\"]", "one of its entries is no table"},
      {one + loss, "no number"},
      {one + "number = 0\n" + loss, "no number"},
      {one + "number = 1", "no swap"},
      {one + "number = 1\nswap = [3]", "one of its swaps is no table"},
      {"next = 2\n[[made]]\nnumber = 1\nuntil = 9\n" + loss, "the step of a swap that was made"}};
  for (const auto& [text, reason] : broken) {
    INFO(text);
    CHECK_THROWS_WITH(Ledger::from_text(text, "step-7"),
                      Catch::Contains("step-7: the ledger") && Catch::Contains(reason));
  }
}

TEST_CASE("what was made after the checkpoint comes again, each at its step", "[ledger]") {
  Ledger ledger;  // of a checkpoint at step 50
  ledger.add(entry(0, 60, "schedule", "config"));
  const Entry first = entry(2, {}, "optimizer"), second = entry(3, {}, "loss"), third = entry(4, {}, "data");
  const std::vector<JournalEntry> journal = {
      line(first, "swap", 84),  // then it was killed, went on from 50, and was asked for another
      line(second, "swap", 54), line(third, "swap_refused", 55)};
  CHECK_FALSE(ledger.follow(journal));
  CHECK(text(ledger.open) == "3 at 54, 1 at 60, 2 at 84");
  CHECK(ledger.open[0].who == "ctl");
  ledger.add(entry(0, 70, "hooks.ema"));
  CHECK(text(ledger.open) == "3 at 54, 1 at 60, 5 at 70, 2 at 84");  // 4 was used

  Ledger later{.next = 4, .open = {entry(2, 84, "optimizer")}, .made = {}};  // of one at step 60
  CHECK_FALSE(later.follow(journal));
  CHECK(text(later.open) == "2 at 84");
}

TEST_CASE("what was asked for when the checkpoint was taken, and made after it", "[ledger]") {
  const Ledger saved{
      .next = 4,
      .open = {entry(1, {}, "optimizer"), entry(2, {}, "loss"), entry(3, {}, "data", "a_rule")},
      .made = {}};
  Ledger ledger = saved;
  CHECK_FALSE(ledger.follow({line(entry(1, {}, "optimizer"), "swap", 51)}));
  CHECK(text(ledger.open) == "3, 1 at 51");  // whoever asked for 2 was told that the run ended
  CHECK(ledger.next == 4);
  ledger = saved;
  ledger.follow({line(entry(3, {}, "data", "a_rule"), "swap", 52)});
  CHECK(text(ledger.open) == "3 at 52");
}

TEST_CASE("what was taken back does not come again, and what came after it does", "[ledger]") {
  const Entry first = entry(1, 98, "optimizer"), second = entry(2, 99, "loss"), third = entry(3, 100, "data");
  const Ledger saved{.next = 4, .open = {}, .made = {{first, 103}, {second, 104}, {third, {}}}};
  const std::vector<JournalEntry> made = {line(first, "swap", 98), line(second, "swap", 99),
                                          line(third, "swap", 100)};

  Ledger ledger = saved;
  CHECK_FALSE(ledger.follow(made));
  CHECK(ledger.made.size() == 3);
  CHECK(ledger.open.empty());

  std::vector<JournalEntry> journal = made;
  journal.push_back(line(second, "swap_rolled_back", 99));
  ledger = saved;
  CHECK(ledger.follow(journal) == 2);
  CHECK(ledger.made.size() == 1);
  CHECK(text(ledger.open) == "3 at 100");

  journal.push_back(line(third, "swap", 100));
  journal.push_back(line(first, "swap_rolled_back", 98));
  ledger = saved;
  CHECK(ledger.follow(journal) == 1);
  CHECK(ledger.made.empty());
  CHECK(text(ledger.open) == "3 at 100");

  Ledger before{.next = 1, .open = {}, .made = {}};  // of a checkpoint ahead of all of it
  CHECK_FALSE(before.follow(journal));
  CHECK(text(before.open) == "3 at 100");
  CHECK(before.next == 4);
}

TEST_CASE("a pause of the executor comes again at its step, without a swap", "[ledger]") {
  const Entry pause{.number = 2, .who = "host", .step = 54, .swaps = {}}, swap = entry(3, {}, "loss");
  Ledger ledger{.next = 2, .open = {}, .made = {}};
  CHECK_FALSE(ledger.follow({line(pause, control::paused, 54), line(swap, "swap_refused", 54)}));
  CHECK(text(ledger.open) == "2 at 54");
  const Ledger read = Ledger::from_text(ledger.text(), "here");
  CHECK(text(read.open) == "2 at 54");
  CHECK(read.open.at(0).swaps.empty());
  Ledger later{.next = 3, .open = {}, .made = {}};  // of a checkpoint behind it
  later.follow({line(pause, control::paused, 54)});
  CHECK(later.open.empty());
}

TEST_CASE("a plan that changed drops what is not in it any more, and only that", "[ledger]") {
  const Entry a = entry(0, 10, "optimizer", "config"), b = entry(0, 20, "schedule", "config"),
              c = entry(0, 30, "loss", "config");
  Ledger ledger;
  ledger.replan({}, {a, b, b});
  ledger.open.erase(ledger.open.begin());  // a is made
  ledger.replan({a, b, b}, {a, b, c});
  CHECK(text(ledger.open) == "3 at 20, 4 at 30");
  ledger.replan({a, b, c}, {});
  CHECK(ledger.open.empty());
}

TEST_CASE("of a plan the same is what asks the same, at the same step, and nobody else's", "[ledger]") {
  const auto planned = [](std::int64_t step, const std::string& slot) {
    return entry(0, step, slot, "config");
  };
  const auto left = [&](const std::vector<Entry>& before, const std::vector<Entry>& now) {
    Ledger ledger;
    ledger.add(entry(0, 20, "loss"));  // a client's, to be made again
    ledger.replan({}, before);
    ledger.replan(before, now);
    return text(ledger.open);
  };
  CHECK(left({planned(10, "loss"), planned(20, "loss")}, {planned(20, "loss")}) == "1 at 20, 3 at 20");
  CHECK(left({planned(10, "loss"), planned(20, "loss")}, {planned(10, "loss")}) == "2 at 10, 1 at 20");
  CHECK(left({planned(20, "loss"), planned(20, "data")}, {planned(20, "loss")}) == "1 at 20, 2 at 20");
  CHECK(left({planned(20, "loss")}, {}) == "1 at 20");

  Entry one = planned(10, "optimizer"), other = one, faster = one;
  one.swaps[0].options.set("rho", Value(0.5));
  one.swaps[0].options.set("beta", Value(0.9));
  other.swaps[0].options.set("beta", Value(0.9));
  other.swaps[0].options.set("rho", Value(0.5));
  faster.swaps[0].options.set("rho", Value(0.6));
  faster.swaps[0].options.set("beta", Value(0.9));
  Ledger ledger;
  ledger.replan({one}, {other});  // that of the checkpoint has ended
  CHECK(ledger.open.empty());
  ledger.replan({one}, {faster});
  CHECK(text(ledger.open) == "1 at 10");
}

TEST_CASE("what of a plan has ended is known by the journal, whatever its end was", "[ledger]") {
  const Entry first = entry(1, 10, "optimizer", "config"), second = entry(2, 20, "loss", "config"),
              third = entry(3, 30, "data", "config"), client = entry(4, {}, "schedule");
  const std::vector<Entry> ended =
      control::ended_of_plan({line(first, "swap", 10), line(client, "swap", 12), line(second, "swap", 20),
                              line(third, "swap_refused", 30), line(second, "swap_rolled_back", 20)});
  CHECK(text(ended) == "1 at 10, 2 at 20, 3 at 30");
}

TEST_CASE("the journal keeps of a request its number and its swaps", "[ledger]") {
  const std::string kept = control::details(entry(7, 30, "loss", "config"));
  CHECK_THAT(kept, Catch::StartsWith("number = 7\n") && Catch::Contains("slot = \"loss\""));
  CHECK_THAT(kept, !Catch::Contains("who") && !Catch::Contains("step"));
}

TEST_CASE("a journal that cannot be read is refused, not passed over", "[ledger]") {
  Ledger ledger;
  JournalEntry broken{17, "ctl", "swap", "", "number = \"one\""};
  CHECK_THROWS_WITH(ledger.follow({broken}), Catch::Contains("step 17") && Catch::Contains("mend the line"));
  broken.what = "changed";
  CHECK_NOTHROW(ledger.follow({broken}));
  CHECK_NOTHROW(ledger.follow({{17, "ctl", "swap", "", ""}}));  // of a host that kept no details
}

TEST_CASE("what a run was before a swap has names of its own in a checkpoint", "[ledger]") {
  CHECK(control::owner_before(control::before_owner(12, "hooks.a/b")) ==
        std::pair(std::int64_t{12}, std::string("hooks.a/b")));
  for (const char* other : {"before", "before/", "before/x/model", "before//model", "before/3",
                            "before/3.model", "behind/3/model", "optimizer"})
    CHECK_FALSE(control::owner_before(other));
}

TEST_CASE("A checkpoint whose manifest lacks the run's file is refused with the way to use its weights") {
  const test::TempFolder folder;
  checkpoint::Manifest manifest{.step = 1};
  manifest.states.push_back({"run", "1", {{"swaps", std::int64_t{0}}}});
  folder.write("manifest.json", checkpoint::to_text(manifest));
  const std::string said = test::message_of<DataError>([&] {
    control::as_left(folder.path(""), config::RunConfig(), plugins::Registry(), [](const auto&) {});
  });
  CHECK_THAT(said, Catch::Contains("no 'file'") && Catch::Contains("copy model.safetensors elsewhere"));
}

}  // namespace ledger_tests
