#include <ATen/ops/tensor.h>

#include <trainyard/scorer.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>

using namespace trainyard;

int main() {
  testing::Made<Scorer> scorer(PLUGIN_FILE);
  const ScoredLayer layer{.name = "fc", .weight = at::tensor({1.0f, -2.0f, 0.0f}).view({1, 3, 1})};
  const at::Tensor scores = scorer->scores(layer, {}, RandomStream(1, "test"));
  EXPECT(scores.equal(at::tensor({1.0f, 4.0f, 0.0f}).view({1, 3, 1})));
  return testing::done();
}
