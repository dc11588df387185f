#include <trainyard/schedule.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>

using namespace trainyard;
using testing::near;

int main() {
  testing::Made<Schedule> square(PLUGIN_FILE);
  EXPECT(near(square->factor({.progress = 0.0}), 1.0));
  EXPECT(near(square->factor({.progress = 0.5}), 0.25));
  EXPECT(near(square->factor({.progress = 1.0}), 0.0));

  testing::Made<Schedule> line(PLUGIN_FILE, {{"power", 1.0}});
  EXPECT(near(line->factor({.progress = 0.25}), 0.75));

  EXPECT_THROWS(ConfigError, "power", testing::Made<Schedule>(PLUGIN_FILE, {{"power", 0.0}}));
  return testing::done();
}
