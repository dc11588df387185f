#include <algorithm>

#include <trainyard/executor.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>
#include <trainyard/testing/run.hpp>

using namespace trainyard;

int main() {
  testing::Made<Executor> executor(PLUGIN_FILE, {{"times", 3}});
  testing::TinyRun echoed, plain;
  echoed.use(*executor);
  echoed.step();
  plain.step();
  EXPECT(std::ranges::count(echoed.events(), Event::after_step) == 3);
  EXPECT(std::ranges::count(echoed.events(), Event::batch_end) == 1);
  EXPECT(echoed.loss() < plain.loss());  // of the last pass over the same batch

  testing::Made<Executor> once(PLUGIN_FILE, {{"times", 1}});
  testing::TinyRun same;
  same.use(*once);
  same.step();
  EXPECT(same.weights()[0].tensor.equal(plain.weights()[0].tensor));
  return testing::done();
}
