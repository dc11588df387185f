#include <trainyard/study.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>

using namespace trainyard;
using testing::near;

int main() {
  testing::Made<Study> study(PLUGIN_FILE, {{"metric", "val/loss"}, {"seeds", 2}, {"set", Array{"a=1"}}});
  study->common.run = "/run.toml";
  const std::optional<StudyTrial> first = study->next(0);
  const std::optional<StudyTrial> second = study->next(1);
  EXPECT(first && second && first->name != second->name && first->set != second->set);
  EXPECT(first && first->set.front() == "a=1" && first->run == "/run.toml");
  EXPECT(!study->next(2));

  // A trial that failed has no metric, and is left out of the mean.
  study->report({.trial = second->name, .until = {}, .metrics = {{"val/loss", 0.5}}, .error = {}});
  study->report({.trial = first->name,
                 .until = {},
                 .end = TrialOutcome::End::failed,
                 .metrics = {},
                 .error = "no memory"});
  EXPECT(near(study->result().tables.front().rows.front().front().value.value(), 0.5));
  return testing::done();
}
