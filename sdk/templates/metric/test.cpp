#include <ATen/ops/tensor.h>

#include <trainyard/metric.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>
#include <trainyard/testing/run.hpp>
#include <trainyard/testing/state.hpp>

using namespace trainyard;
using testing::near;

int main() {
  testing::Made<Metric> metric(PLUGIN_FILE, {{"tolerance", 0.5}});
  Batch batch;
  batch.target = at::tensor({0.0, 1.0, 2.0, 3.0});
  metric->reset();
  metric->update(at::tensor({0.4, 1.6, 2.0, 2.5}), {}, batch);
  EXPECT(near(metric->compute()[0], 0.75));

  // Two halves are a whole, and a checkpoint in the middle of an evaluation loses nothing.
  testing::Made<Metric> other(PLUGIN_FILE, {{"tolerance", 0.5}});
  EXPECT(testing::round_trip(metric, other).empty());
  other->merge(StateReader(metric.saved()));
  EXPECT(near(other->compute()[0], 0.75));
  EXPECT(testing::not_missed(metric.saved(), other).empty());

  EXPECT_THROWS(ConfigError, "3 classes", metric->check({3}, testing::tiny_schema()));
  return testing::done();
}
