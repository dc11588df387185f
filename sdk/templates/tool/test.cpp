#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>
#include <trainyard/testing/workshop.hpp>
#include <trainyard/tool.hpp>

using namespace trainyard;

int main() {
  testing::FakeWorkshop workshop;
  testing::Made<Tool> tool(PLUGIN_FILE);
  const Report report = tool->run(workshop);
  EXPECT(report.code == ExitCode::done);
  EXPECT(report.rows.size() == 4);  // weight and bias of two layers
  EXPECT(report.rows[0].size() == report.columns.size());
  EXPECT(report.rows[0][2].as<double>() > 0.0);

  testing::Made<Tool> strict(PLUGIN_FILE, {{"limit", 0.0}});
  EXPECT(strict->run(workshop).code == ExitCode::numeric);
  return testing::done();
}
