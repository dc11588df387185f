#include <trainyard/optimizer.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>
#include <trainyard/testing/run.hpp>
#include <trainyard/testing/state.hpp>

using namespace trainyard;

int main() {
  testing::Made<Optimizer> lion(PLUGIN_FILE, {{"lr", 0.01}});
  testing::TinyRun run({.lr = 0.01});
  run.use(*lion);
  const std::vector<NamedTensor> before = run.weights();
  run.step();
  // Whatever the gradient, a weight moves by the learning rate, against the gradient's sign.
  const at::Tensor moved = run.weights()[0].tensor.sub(before[0].tensor);
  EXPECT(moved.allclose(run.gradients()[0].tensor.sign().mul(-0.01), 1e-3, 1e-6));
  const double loss = run.loss();
  run.step(30);
  EXPECT(run.loss() < loss);

  // A checkpoint holds all of it, and one that lacks something is refused.
  testing::Made<Optimizer> other(PLUGIN_FILE, {{"lr", 0.01}});
  other->open(make_groups(run.network().parameters(), other->common));
  EXPECT(testing::round_trip(lion, other).empty());
  EXPECT(testing::not_missed(lion.saved(), other).empty());
  return testing::done();
}
