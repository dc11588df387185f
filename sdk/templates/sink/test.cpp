#include <fstream>
#include <iterator>

#include <trainyard/sink.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>

using namespace trainyard;

int main() {
  testing::Made<Sink> sink(PLUGIN_FILE, {{"file", "test_metrics.prom"}});
  sink->open({.name = "test", .directory = ".", .started = {}});
  Record record;
  record.values = {{"train/loss", 0.5}};
  sink->record(record);
  record.values = {{"train/loss", 0.25}, {"val/accuracy", 1.0}};
  sink->record(record);
  sink->close();
  std::ifstream file("test_metrics.prom");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT(text == "run{metric=\"train/loss\"} 0.25\nrun{metric=\"val/accuracy\"} 1\n");
  return testing::done();
}
