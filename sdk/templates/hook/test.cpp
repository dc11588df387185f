#include <trainyard/hook.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>
#include <trainyard/testing/run.hpp>

using namespace trainyard;

int main() {
  testing::Made<Hook> hook(PLUGIN_FILE);
  testing::TinyRun run;
  run.add(hook);
  run.step();
  // Rows of weights have gradients of mean zero, biases are as they were; nothing was written undeclared.
  EXPECT(run.gradients()[0].name == "fc1.weight");
  EXPECT(run.gradients()[0].tensor.mean(1).abs().max().item().toDouble() < 1e-6);
  EXPECT(run.gradients()[0].tensor.abs().max().item().toDouble() > 1e-4);
  EXPECT(run.gradients()[1].tensor.sum().abs().item().toDouble() > 1e-6);
  const double before = run.loss();
  run.step(40);
  EXPECT(run.loss() < before);
  return testing::done();
}
