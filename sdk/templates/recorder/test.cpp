#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include <trainyard/recorder.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>
#include <trainyard/testing/run.hpp>

using namespace trainyard;

int main() {
  std::remove("test_norms.csv");
  testing::Made<Recorder> recorder(PLUGIN_FILE, {{"file", "test_norms.csv"}});
  recorder->open({.name = "test", .directory = ".", .started = {}});
  testing::TinyRun run;
  run.add(recorder);
  run.step(3);
  std::ifstream file("test_norms.csv");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT(std::ranges::count(text, '\n') == 3);
  EXPECT(std::ranges::count(text, ',') == 3 * 4);  // weight and bias of two layers
  EXPECT(text.starts_with("1,") && text.find("\n3,") != std::string::npos);
  return testing::done();
}
