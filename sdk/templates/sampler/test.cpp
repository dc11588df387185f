#include <algorithm>

#include <trainyard/sampler.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>

using namespace trainyard;

int main() {
  testing::Made<Sampler> sampler(PLUGIN_FILE, {{"block", 10}});
  sampler->open({.size = 95, .random = RandomStream(1, "sampler"), .labels = {}});
  std::vector<std::int64_t> order(95), part(20), next(95);
  sampler->order(0, 0, order);
  sampler->order(1, 0, next);
  EXPECT(order.front() % 10 == 0);
  EXPECT(order != next);

  // Any part of the order is the same, asked for by itself, and each sample comes once.
  sampler->order(0, 50, part);
  EXPECT(std::equal(part.begin(), part.end(), order.begin() + 50));
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT(order[i] == static_cast<std::int64_t>(i));
  return testing::done();
}
