#include <ATen/ops/ones.h>

#include <trainyard/dropout.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>
#include <trainyard/testing/run.hpp>

using namespace trainyard;
using testing::near;

int main() {
  testing::Made<Dropout> dropout(PLUGIN_FILE, {{"p", 0.5}});
  ForwardContext training;
  training.training = true;
  const DropoutCall call{.p = 0.5, .random = RandomStream(1, "fc1.dropout"), .pass = training};
  const at::Tensor noisy = dropout->apply(at::ones({400, 100}), 0, call);
  EXPECT(near(noisy.mean().item().toDouble(), 1.0, 0.02));
  EXPECT(near(noisy.var().item().toDouble(), 1.0, 0.05));
  EXPECT(noisy.equal(dropout->apply(at::ones({400, 100}), 0, call)));  // the same call draws the same

  testing::TinyRun run;
  run.use(*dropout);
  const Batch batch = testing::tiny_batch(testing::tiny_schema(), 8);
  const at::Tensor plain = run.network().forward(batch, {});
  EXPECT(run.network().forward(batch, {}).equal(plain));
  EXPECT(!run.network().forward(batch, training).equal(plain));
  return testing::done();
}
