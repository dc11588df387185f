// Weights that are not finite: neither a checkpoint nor the end of a run takes them for a result.
#include <cmath>
#include <functional>
#include <set>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <catch2/catch.hpp>

#include "core/rundir/folder.hpp"
#include "support/live.hpp"

namespace weights_tests {

using namespace trainyard;
using Catch::Matchers::Contains;
using test::LiveRun;
using test::registry;

namespace {

/// A network with buffers, floating and not; a checkpoint after each of four steps.
const std::string text = R"(
schema = 1
[run]
name = "weights"
threads = { intra_op = 1, inter_op = 1 }
[model]
type = "resnet"
depth = 8
width = 2
[loss]
type = "cross_entropy"
[data]
type = "synthetic"
kind = "classification"
shape = [3, 8, 8]
classes = 3
train = { size = 32, batch_size = 8 }
[optimizer]
type = "sgd"
lr = 0.01
[trainer]
max_duration = "4ba"
[checkpoint]
interval = "1ba"
keep_last = 1
)";

/// `value` into the first element of a weight, by name, after step 3.
std::function<void(LiveRun&)> spoil(const std::string& name, float value) {
  return [=](LiveRun& run) {
    run.on_safe_point = [=, &run] {
      const at::NoGradGuard no_grad;
      for (const NamedTensor& each : run->states().weights())
        if (each.name == name && run->clock().step == 3) each.tensor.view({-1})[0] = value;
    };
  };
}

/// The message that the run ends with, empty where it completes; `left`: steps of its checkpoints then.
std::string ending(const std::string& more, const std::function<void(LiveRun&)>& prepare,
                   std::set<std::int64_t>& left) {
  LiveRun run(text + more, registry());
  prepare(run);
  std::string message;
  try {
    run.fit();
  } catch (const NumericError& error) {
    message = error.what();
  }
  run->checkpointer().as<Checkpointer>().drain();
  left.clear();
  for (const std::string& each : checkpoint::list(run.directory() + "/checkpoints")) {
    left.insert(*checkpoint::step_of(each));
    CHECK(checkpoint::verify(each).empty());
  }
  return message;
}

}  // namespace

TEST_CASE("a checkpoint is not taken of weights that are not finite, and the last good one stays") {
  using Steps = std::set<std::int64_t>;
  Steps left;
  CHECK(ending(
            "", [](LiveRun&) {}, left)
            .empty());
  CHECK(left == Steps{4});
  for (const char* name : {"conv1.weight", "fc.bias", "bn1.running_var", "layer3.0.bn2.running_mean"})
    for (const float value : {std::nanf(""), -INFINITY}) {
      INFO(name << " = " << value);
      const std::string message = ending("", spoil(name, value), left);
      CHECK_THAT(message, Contains(name) && Contains("after step 3") && Contains("optimizer.lr"));
      CHECK(left == Steps{2});
    }
  // No hook is to blame: neither leaving one out nor going back to try again would help.
  for (const char* checkpointer : {"full", "async"})
    for (const char* nan : {"disable", "rollback"}) {
      INFO(checkpointer << ", " << nan);
      const std::string more =
          "type = \"" + std::string(checkpointer) + "\"\n[guard]\nnan = \"" + std::string(nan) + "\"\n";
      CHECK_THAT(ending(more, spoil("bn1.running_var", INFINITY), left), Contains("bn1.running_var"));
      CHECK(left == Steps{2});
    }
  // A value that is meant to be there: nobody looks.
  CHECK(ending("[guard]\nnan = \"off\"\n", spoil("bn1.running_var", INFINITY), left).empty());
  CHECK(left == Steps{4});
}

}  // namespace weights_tests
