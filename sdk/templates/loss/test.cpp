#include <ATen/ops/tensor.h>

#include <trainyard/loss.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>
#include <trainyard/testing/run.hpp>

using namespace trainyard;
using testing::near;

int main() {
  testing::Made<Loss> huber(PLUGIN_FILE);
  Batch batch;
  batch.target = at::tensor({0.0, 0.0});
  // 0.5 * 0.5^2 and 1 * (3 - 0.5), halved.
  EXPECT(near(huber->forward(at::tensor({0.5, 3.0}), batch).item().toDouble(), (0.125 + 2.5) / 2));

  // A network learns with it.
  testing::TinyRun run({.classes = 0});
  run.use(*huber);
  run.step();
  const double before = run.loss();
  run.step(40);
  EXPECT(run.loss() < before);

  EXPECT_THROWS(ConfigError, "3 classes", huber->check({3}, testing::tiny_schema()));
  EXPECT_THROWS(ConfigError, "delta", testing::Made<Loss>(PLUGIN_FILE, {{"delta", -1.0}}));
  return testing::done();
}
