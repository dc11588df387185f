// What ends a run before its time, and what of it stays where the run goes on: with the same options, with
// others, without the plugin that asked.
#include <catch2/catch.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "core/engine/verbs/signal_scope.hpp"
#include "support/live.hpp"
#include "support/small_parts.hpp"
#include "support/trained.hpp"

namespace stopping_tests {

using namespace trainyard;
using Catch::Matchers::Contains;
using test::LiveRun;
using test::registry;
using test::Trained;

namespace {

/// An evaluation after every second step; its loss never rises as it should.
const std::string head = R"(
schema = 1
[run]
name = "stopping"
seed = 3
resume = "auto"
threads = { intra_op = 1, inter_op = 1 }
)" + test::small_parts + R"([optimizer]
type = "adamw"
lr = 0.01
[trainer]
max_duration = "24ba"
eval_interval = "2ba"
[checkpoint]
type = "full"
interval = "5ba"
keep_last = 9
[logging]
interval = "1ba"
sinks = []
)";

/// The first evaluation sets the mark: it ends at step 2 + 2 * patience.
std::string stopping(int patience) {
  return "[early_stopping]\nmetric = \"val/loss\"\nmode = \"max\"\npatience = " + std::to_string(patience) +
         "\n";
}

std::int64_t steps(const Trained& run) {
  return run.result()["steps"];
}

/// The result of a run that nothing disturbs.
std::string undisturbed(const std::string& text) {
  Trained run;
  REQUIRE(run.train(text) == 0);
  return run.digest();
}

}  // namespace

TEST_CASE("a run that stopped goes on with more patience, and comes where one comes that had it all along") {
  Trained run;
  REQUIRE(run.train(head + stopping(3)) == 0);
  CHECK(run.result()["status"] == "stopped");
  CHECK(steps(run) == 8);
  REQUIRE(run.journal("stop_run").size() == 1);
  CHECK_THAT(run.journal("stop_run").at(0),
             Contains("val/loss did not improve on ") && Contains(" for 3 evaluations"));
  REQUIRE(run.train(head + stopping(6)) == 0);
  CHECK(run.result()["status"] == "stopped");
  CHECK(steps(run) == 14);
  CHECK(run.digest() == undisturbed(head + stopping(6)));
  REQUIRE(run.train(head + stopping(90)) == 0);
  CHECK(run.result()["status"] == "completed");
  CHECK(run.digest() == undisturbed(head));
}

TEST_CASE("a run that is killed after the checkpoint of its stop ends the same way") {
  for (const std::string& stop : {stopping(3), std::string("[[hooks]]\ntype = \"asking\"\nstep = 8\n")}) {
    INFO(stop);
    Trained run;
    REQUIRE(run.train(head + stop) == 0);
    const std::string digest = run.digest();
    for (const char* resume : {"auto", "must"}) {
      INFO(resume);
      REQUIRE(std::filesystem::remove(run / "result.json"));  // as a kill leaves it
      REQUIRE(run.train(head + stop, {std::string("run.resume=") + resume}) == 0);
      CHECK(run.result()["status"] == "stopped");
      CHECK(steps(run) == 8);
      CHECK(run.digest() == digest);
      CHECK(run.journal("stop_run").size() == 1);  // it stands, and is not told anew
    }
  }
}

TEST_CASE("what a plugin asked for goes with it") {
  Trained run;
  REQUIRE(run.train(head + stopping(3)) == 0);
  REQUIRE(run.train(head) == 0);
  CHECK(run.result()["status"] == "completed");
  CHECK(run.digest() == undisturbed(head));
  // Nor does another in its place have to answer for it.
  Trained other;
  REQUIRE(other.train(head + "[early_stopping]\ntype = \"asking\"\nstep = 8\n") == 0);
  CHECK(steps(other) == 8);
  REQUIRE(other.train(head + stopping(90)) == 0);
  CHECK(other.result()["status"] == "completed");
}

TEST_CASE("a stop at the end of the budget is none") {
  Trained run;
  REQUIRE(run.train(head + stopping(11)) == 0);
  CHECK(run.result()["status"] == "completed");
  CHECK(steps(run) == 24);
  CHECK(run.journal("stop_run").empty());
  // Where there is more of it, its patience is at its end.
  REQUIRE(run.train(head + stopping(11), {"trainer.max_duration=48ba"}) == 0);
  CHECK(run.result()["status"] == "stopped");
  CHECK(steps(run) == 24);
}

TEST_CASE("patience changes in a running training") {
  LiveRun more(head + stopping(3), registry(), {{5, "early_stopping", "", {"patience=4"}}});
  more.fit();
  CHECK(more->clock().step == 10);
  LiveRun less(head + stopping(9), registry(), {{9, "early_stopping", "", {"patience=2"}}});
  less.fit();
  CHECK(less->clock().step == 9);
  // At the safe point behind the evaluation that would have ended it.
  LiveRun saved(head + stopping(3), registry(), {{8, "early_stopping", "", {"patience=5"}}});
  saved.fit();
  CHECK(saved->clock().step == 12);
  // A swap that is taken back leaves the patience that there was.
  LiveRun refused(head + stopping(3), registry(), {{5, "early_stopping", "", {"patience=0"}}});
  refused.fit();
  CHECK_FALSE(refused.told().at(0).done);
  CHECK(refused->clock().step == 8);
}

TEST_CASE("a look at the validation loss uses up no patience") {
  LiveRun run(head + stopping(3), registry(), {{.step = 6}, {.step = 6}, {.step = 6}});
  run.fit();
  REQUIRE(run.told().size() == 3);
  for (const test::Told& told : run.told()) CHECK_THAT(told.text, Contains("evaluated at step 6"));
  CHECK(run->clock().step == 8);
}

TEST_CASE("a signal that asks for the end breaks off no system call") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const train::SignalScope scope;
  ssize_t read = 0;
  std::thread reader([&] {
    char byte = 0;
    read = ::read(ends[0], &byte, 1);
  });
  const auto soon = std::chrono::milliseconds(50);
  std::this_thread::sleep_for(soon);  // the reader waits in its call
  ::pthread_kill(reader.native_handle(), SIGUSR1);
  std::this_thread::sleep_for(soon);
  CHECK(train::SignalScope::caught() == SIGUSR1);
  CHECK(::write(ends[1], "x", 1) == 1);
  reader.join();
  CHECK(read == 1);
  for (const int each : ends) ::close(each);
}

}  // namespace stopping_tests
