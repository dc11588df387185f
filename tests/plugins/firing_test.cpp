// Verdicts of rules whose action is still to come, as a checkpoint keeps them.
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>

#include "plugins/recorder/trial/firing.hpp"

namespace firing_tests {

using namespace trainyard;
using trial::Firing;

TEST_CASE("a verdict in a checkpoint is the same when it is read") {
  Firing swap{.rule = "overfit", .mode = "EVAL", .mode_step = 12, .action = "swap", .lr_scale = 0.5};
  swap.finding.message = "val/loss: it grew";
  swap.finding.tensors = {"val/loss", "train/loss"};
  swap.swap = {.slot = "optimizer", .type = "sgd", .set = {"lr=0.1", "momentum=0.9"}};
  const Firing stop{.rule = "stalled", .mode = "TRAIN", .mode_step = -1, .action = "stop"};
  const std::vector<Firing> read = trial::firings_of(trial::text_of({swap, stop}));
  REQUIRE(read.size() == 2);
  CHECK(read[0].text() == "overfit at step 12 of EVAL: val/loss: it grew");
  CHECK(read[0].finding.tensors == swap.finding.tensors);
  CHECK(read[0].action == "swap");
  CHECK(read[0].lr_scale == 0.5);
  CHECK(read[0].swap.slot == "optimizer");
  CHECK(read[0].swap.type == "sgd");
  CHECK(read[0].swap.set == swap.swap.set);
  CHECK(read[1].text() == "stalled while it waited: ");
  CHECK(read[1].action == "stop");
  CHECK(trial::firings_of(trial::text_of({})).empty());
  CHECK_THROWS_AS(trial::firings_of("[{}]"), PluginError);
}

}  // namespace firing_tests
