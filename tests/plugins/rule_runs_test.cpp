// The rule over two runs.
#include <ATen/ATen.h>

#include <trainyard/formats/trial_files.hpp>

#include "tests/support/folder.hpp"
#include "tests/support/rule_run.hpp"

namespace rule_runs_tests {

using namespace trainyard;
using test::no_number;
using test::numbers;
using test::Shown;
using test::steps;
using test::table;

namespace {

using Steps = std::vector<std::int64_t>;

Shown at_step(std::int64_t step, double loss, std::int64_t width = 3, Mode mode = Mode::train) {
  return {.tensors = {test::raw("loss_output_0", at::full({}, loss, at::kDouble)),
                      test::raw("fc1.weight", at::arange(width).to(at::kDouble))},
          .step = step,
          .mode = mode};
}

/// The files of a run with these records.
void write(const std::string& folder, const std::vector<Shown>& run) {
  SavedCollection losses;
  losses.name = "losses";
  losses.include = {"loss"};
  TrialWriter writer(folder, {losses});
  std::int64_t step = 0;
  for (const Shown& shown : run) {
    StepRecord record{.mode = shown.mode, .mode_step = shown.step, .step = step++, .tensors = shown.tensors};
    std::sort(record.tensors.begin(), record.tensors.end(),
              [](const TensorRecord& a, const TensorRecord& b) { return a.name < b.name; });
    writer.write(record, [](const TensorRecord&) { return Stored{.value = true, .reductions = {}}; });
  }
  writer.end();
}

}  // namespace

TEST_CASE("similar_across_runs fires at the steps at which a tensor differs from the other run's") {
  const test::Folder folder;
  write(folder / "run/trial", {at_step(0, 2.0), at_step(2, 1.5), at_step(4, no_number),
                               at_step(0, 1.0, 3, Mode::eval), at_step(6, 0.5)});
  const Table options = table({{"other", folder / "run"}});
  const std::vector<Shown> same = {at_step(0, 2.0), at_step(2, 1.5), at_step(4, no_number), at_step(6, 0.5)};
  CHECK(steps("similar_across_runs", options, same) == Steps{});
  // Steps that the other run lacks are let pass.
  CHECK(steps("similar_across_runs", options,
              {at_step(0, 2.1), at_step(1, 9.0), at_step(2, 1.5), at_step(4, 1.0), at_step(8, 1.0)}) ==
        Steps{0, 4});
  CHECK(steps("similar_across_runs", options, {at_step(0, 2.0 * (1 + 0.9e-5))}) == Steps{});
  CHECK(steps("similar_across_runs", options, {at_step(0, 2.0 * (1 + 1.1e-5))}) == Steps{0});
  CHECK(steps("similar_across_runs", options, {at_step(0, 1.0, 3, Mode::eval)}) == Steps{});
  CHECK(steps("similar_across_runs", options, {at_step(0, 2.0, 3, Mode::eval)}) == Steps{0});
  const auto fired = test::watch("similar_across_runs", options, {at_step(0, 2.5)});
  CHECK(fired.at(0).finding.message == "loss_output_0: its mean is 2.5, and 2 in " + (folder / "run"));
  // The folder of the trial itself; other tensors; another shape.
  const Table weights = table({{"other", folder / "run/trial"}, {"tensors", "weights"}});
  CHECK(steps("similar_across_runs", weights, {at_step(0, 9.0)}) == Steps{});
  CHECK(steps("similar_across_runs", weights, {at_step(0, 2.0, 4)}) == Steps{0});
}

TEST_CASE("similar_across_runs names first what differs most for its size") {
  const auto at_start = [](double large, double small) {
    return Shown{.tensors = {test::raw("large", at::full({}, large, at::kDouble)),
                             test::raw("small", at::full({}, small, at::kDouble))}};
  };
  const test::Folder folder;
  write(folder / "run/trial", {at_start(100.0, 1.0)});
  const Table options = table({{"other", folder / "run"}, {"tensors", "large|small"}});
  const auto fired = test::watch("similar_across_runs", options, {at_start(103.0, 1.5)});
  REQUIRE(fired.size() == 1);
  CHECK(fired[0].finding.tensors == std::vector<std::string>{"small", "large"});
  CHECK(test::evidence(fired[0].finding, "small") == 0.5);
  CHECK(test::evidence(fired[0].finding, "large") == 3.0);
}

TEST_CASE("similar_across_runs says that the other run has no trial") {
  const test::Folder folder;
  test::RuleRun run("similar_across_runs", table({{"other", folder / "nothing"}}));
  CHECK_FALSE(run.show(at_step(0, 1.0)));
  CHECK(run.complaints.size() == 1);
}

}  // namespace rule_runs_tests
