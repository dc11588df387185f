#include <ATen/ops/full.h>

#include <trainyard/compressor.hpp>
#include <trainyard/testing/compressor.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>
#include <trainyard/testing/ranks.hpp>

using namespace trainyard;

int main() {
  // Three ranks, each on a thread: what they have afterwards is the sum, the same on all of them.
  std::vector<at::Tensor> sums(3);
  testing::on_ranks(3, [&](Ranks& ranks) {
    testing::Made<Compressor> compressor(PLUGIN_FILE);
    const std::vector<BucketPlan> buckets = {{.elements = 100, .parts = {{"fc1.weight", 0, {10, 10}}}}};
    compressor->open(ranks, buckets, {});
    const at::Tensor gradients = at::full({100}, 0.1 * (ranks.rank() + 1));
    compressor->reduce(0, gradients, 0)->wait();
    sums[static_cast<std::size_t>(ranks.rank())] = gradients;
  });
  EXPECT(sums[0].allclose(at::full({100}, 0.6), 0.01));
  EXPECT(sums[1].equal(sums[0]) && sums[2].equal(sums[0]));
  EXPECT(testing::wrong_sums(PLUGIN_FILE) == "");
  EXPECT(testing::wrong_states(PLUGIN_FILE) == "");
  return testing::done();
}
