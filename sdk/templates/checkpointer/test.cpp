#include <trainyard/checkpointer.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>
#include <trainyard/testing/store.hpp>

using namespace trainyard;

int main() {
  testing::FakeStore store;
  testing::Made<Checkpointer> checkpointer(PLUGIN_FILE, {{"slow", 0.0}});
  checkpointer->open(store);
  checkpointer->take(testing::tiny_snapshot(10));
  checkpointer->take(testing::tiny_snapshot(20));
  checkpointer->drain();
  EXPECT(store.steps() == std::vector<std::int64_t>({10, 20}));
  EXPECT(checkpointer.host().logged("a checkpoint took", LogLevel::warning));

  // An error of the disk comes out of take or of drain.
  store.full = true;
  EXPECT_THROWS(DataError, "full", (checkpointer->take(testing::tiny_snapshot(30)), checkpointer->drain()));
  return testing::done();
}
