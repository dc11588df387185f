#include <ATen/ops/full.h>

#include <trainyard/rule.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>
#include <trainyard/testing/records.hpp>

using namespace trainyard;

int main() {
  testing::Made<Rule> rule(PLUGIN_FILE, {{"limit", 2.0}});
  testing::FakeTrial trial;
  EXPECT(!trial.show(*rule, {{"fc1.weight", at::full({4, 4}, 1.5)}}));
  const std::optional<Finding> found = trial.show(*rule, {{"fc1.weight", at::full({4, 4}, -2.5)}});
  EXPECT(found && found->tensors == std::vector<std::string>{"fc1.weight"});
  EXPECT(found && found->message.find("2.5") != std::string::npos);
  EXPECT(!trial.show(*rule, {{"fc1.bias", at::full({4}, 9.0)}}));
  return testing::done();
}
