#include <trainyard/detector.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>

using namespace trainyard;

int main() {
  testing::Made<Detector> detector(PLUGIN_FILE), other(PLUGIN_FILE);
  const std::vector<double> values = {1, 0, -1, 0, 3, 4, -3, -4};
  const std::vector<double> scores =
      detector->fit({values, 4, 2}, RandomStream(1, "test"), [] { return false; });
  EXPECT(scores == (std::vector<double>{1, 1, 5, 5}));
  other->use(detector->learned());
  const std::span<const double> last = std::span(values).last(2);
  EXPECT(other->score({last, 1, 2}) == std::vector<double>{5});
  return testing::done();
}
