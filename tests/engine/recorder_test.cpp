// The recorder in whole trainings: what it takes and when, what its rules do to the run, what they cannot do
// to it, and that a run that goes on leaves one trial.
#include <dlfcn.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>
#include <thread>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <trainyard/formats/trial_files.hpp>

#include "made/nvml.hpp"
#include "support/folder.hpp"
#include "support/live.hpp"
#include "support/run.hpp"
#include "support/small_parts.hpp"
#include "support/trained.hpp"

namespace recorder_tests {

using namespace trainyard;
using Catch::Matchers::Contains;
using test::Folder;
using test::registry;
using test::Trained;
namespace fs = std::filesystem;
using Json = nlohmann::json;
using Steps = std::vector<std::int64_t>;

namespace {

const std::string head = R"(
schema = 1
[run]
name = "recorded"
seed = 3
resume = "auto"
deterministic = "strict"
threads = { intra_op = 1, inter_op = 1 }
)" + test::small_parts + R"([optimizer]
type = "sgd"
lr = 0.01
[schedule]
type = "constant"
[trainer]
max_duration = "24ba"
eval_interval = "10ba"
[checkpoint]
type = "full"
interval = "4ba"
[logging]
interval = "1ba"
sinks = [{ type = "jsonl" }]
)";
const std::string dense = "[recorder]\nsave_interval = 1\n";

std::string rule(const std::string& options) {
  return "[[rules]]\ntype = \"probe\"\nevery = \"1ba\"\n" + options;
}

std::string undisturbed() {
  static const std::string digest = [] {
    Trained run;
    REQUIRE(run.train(head) == 0);
    return run.digest();
  }();
  return digest;
}

Steps range(std::int64_t begin, std::int64_t end, std::int64_t every = 1) {
  Steps steps;
  for (std::int64_t step = begin; step < end; step += every) steps.push_back(step);
  return steps;
}

/// The first numbers of the lines that the probe wrote.
Steps traced(const std::string& path, std::size_t column = 0) {
  Steps steps;
  for (const std::string& line : test::lines(path)) {
    std::istringstream words(line);
    std::int64_t number = 0;
    for (std::size_t i = 0; i <= column; ++i) words >> number;
    steps.push_back(number);
  }
  return steps;
}

}  // namespace

TEST_CASE("weights are those before the step, gradients those of the step, and nothing of the run changes") {
  Trained run;
  REQUIRE(run.train(head + dense +
                    "collections = [{ name = \"weights\" }, { name = \"biases\" }, "
                    "{ name = \"gradients\" }, { name = \"inputs\" }, { name = \"metrics\" }, "
                    "{ name = \"relu\", include_regex = [\"^relu1_(in|out)put_0\"] }, "
                    "{ name = \"labels\", include_regex = [\"^label$\"] }]\n") == 0);
  CHECK(run.digest() == undisturbed());
  const TrialReader trial = run.trial();
  CHECK(trial.ended());
  CHECK(trial.steps(Mode::train) == range(0, 24));
  CHECK(trial.steps(Mode::eval) == range(0, 3));
  CHECK(trial.steps(Mode::global) == range(0, 27));
  for (std::int64_t step = 0; step + 1 < 24; ++step) {
    const auto now = trial.record(Mode::train, step), next = trial.record(Mode::train, step + 1);
    for (const char* name : {"fc1.weight", "fc2.bias"}) {
      const at::Tensor gradient = now->find(std::string("gradient/") + name)->value;
      const at::Tensor expected = now->find(name)->value - 0.01 * gradient;
      CHECK(at::allclose(next->find(name)->value, expected, 1e-5, 1e-7));
      CHECK_FALSE(at::equal(next->find(name)->value, now->find(name)->value));
    }
    CHECK(now->find("input_0")->shape == Steps{16, 8});
    CHECK(now->find("label")->value.scalar_type() == at::kLong);
    const at::Tensor in = now->find("relu1_input_0")->value, out = now->find("relu1_output_0")->value;
    CHECK(at::equal(out, in.clamp_min(0)));
  }
  const auto losses = run.metric("loss");
  CHECK(trial.record(Mode::train, 5)->find("loss_output_0")->scalar() > 0.0);
  const auto evaluation = trial.record(Mode::eval, 1);
  CHECK(evaluation->find("metric/val/loss")->scalar() == evaluation->find("loss_output_0")->scalar());
  CHECK(evaluation->step == 21);
}

TEST_CASE("gradients are those of the whole batch, before they are clipped, whatever the micro-batches") {
  const std::string text = head + dense + "collections = [{ name = \"gradients\" }]\n";
  const auto first = [&](const std::vector<std::string>& sets) {
    Trained run;
    REQUIRE(run.train(text, sets) == 0);
    return run.trial().record(Mode::train, 0);
  };
  const auto plain = first({});
  for (const std::vector<std::string>& sets :
       {std::vector<std::string>{"data.train.micro_batch_size=4"},
        {"data.train.micro_batch_size=2"},
        {"trainer.grad_clip={ max = 0.001 }"},
        {"data.train.micro_batch_size=8", "trainer.grad_clip={ max = 0.001, type = \"value\" }"}}) {
    INFO(sets.front());
    const auto other = first(sets);
    REQUIRE(other->tensors.size() == plain->tensors.size());
    for (const TensorRecord& tensor : plain->tensors)
      CHECK(at::allclose(other->find(tensor.name)->value, tensor.value, 1e-4, 1e-6));
  }
}

TEST_CASE("what is reduced beside the passes is what the tensors held at their moment") {
  Trained run;
  const std::string all = ", save_interval = 1, save_raw_tensor = true, reductions = [\"l2\"] }";
  REQUIRE(run.train(head + "[recorder]\ncollections = [{ name = \"weights\"" + all +
                        ", { name = \"gradients\"" + all + "]\n",
                    {"model.layers=[8,1024,1056,3]", "trainer.max_duration=6ba",
                     "trainer.grad_clip={ type=\"norm\", max=0.01 }", "data.train.accumulation=2",
                     "optimizer.lr=0.5", "checkpoint.interval=1000ba"}) == 0);
  const TrialReader trial = run.trial();
  std::vector<double> norms;
  for (const std::int64_t step : range(0, 6)) {
    const auto record = trial.record(Mode::train, step);
    for (const char* name : {"fc1.weight", "fc2.weight", "gradient/fc2.weight"}) {
      INFO(name << " at step " << step);
      const TensorRecord* tensor = record->find(name);
      REQUIRE(tensor != nullptr);
      REQUIRE(tensor->statistics);
      const Statistics whole = statistics(tensor->value);
      CHECK(tensor->statistics->count == whole.count);
      CHECK(tensor->statistics->minimum == whole.minimum);
      CHECK(tensor->statistics->l2() == Approx(whole.l2()).epsilon(1e-9));
      CHECK(tensor->statistics->deviation == Approx(whole.deviation).epsilon(1e-9));
    }
    norms.push_back(record->find("fc2.weight")->statistics->l2());
  }
  CHECK(std::adjacent_find(norms.begin(), norms.end()) == norms.end());
}

TEST_CASE("what a device computes of tensors is what the CPU computes of their copies") {
  if (!at::hasCUDA()) {
    WARN("skipped: it takes a GPU");
    return;
  }
  Trained run;
  const std::string all = ", save_interval = 1, save_raw_tensor = true, reductions = [\"l2\"] }";
  REQUIRE(run.train(head + "[recorder]\ncollections = [{ name = \"weights\"" + all +
                        ", { name = \"gradients\"" + all + ", { name = \"outputs\"" + all + "]\n",
                    {"run.device=cuda", "data.train.accumulation=2"}) == 0);
  const TrialReader trial = run.trial();
  CHECK(trial.steps(Mode::train) == range(0, 24));
  for (const std::int64_t step : range(0, 24)) {
    const auto record = trial.record(Mode::train, step);
    CHECK(record->find("loss_output_0") != nullptr);
    for (const TensorRecord& tensor : record->tensors) {
      if (!tensor.value.defined() || !tensor.statistics) continue;
      INFO(tensor.name << " at step " << step);
      const Statistics whole = statistics(tensor.value);
      CHECK(tensor.statistics->count == whole.count);
      CHECK(tensor.statistics->minimum == whole.minimum);
      CHECK(tensor.statistics->l2() == Approx(whole.l2()).epsilon(1e-6));
      CHECK(tensor.statistics->deviation == Approx(whole.deviation).epsilon(1e-6));
    }
  }
}

TEST_CASE("gradients of fp16 are recorded without their scale") {
  const std::string text = head + dense + "collections = [{ name = \"gradients\" }]\n";
  const auto refused =
      test::resolve(text, {"trainer.precision=fp16-mixed", "run.device=cuda"}, registry()).findings.text();
  if (!refused.empty() || !at::hasCUDA()) {
    WARN("skipped: it takes a GPU");
    return;
  }
  Trained plain, half;
  REQUIRE(plain.train(text, {"run.device=cuda"}) == 0);
  REQUIRE(half.train(text, {"trainer.precision=fp16-mixed", "run.device=cuda"}) == 0);
  const auto a = plain.trial().record(Mode::train, 0), b = half.trial().record(Mode::train, 0);
  for (const TensorRecord& tensor : a->tensors)
    CHECK(at::allclose(b->find(tensor.name)->value, tensor.value, 5e-2, 1e-3));
}

TEST_CASE("on steps where nothing is due nothing is taken; rules and collections are taken together") {
  Trained run;
  const std::string trace = run.folder() / "trace";
  REQUIRE(
      run.train(head +
                "[recorder]\nsave_interval = 6\nsave_steps = [1]\ncollections = [{ name = \"weights\", "
                "reductions = [\"mean\"], save_interval = 10, start_step = 5, end_step = 20 }]\n" +
                rule("watch = \"^gradient/fc1\"\nvalues = true\nstart = \"2ba\"\nend = \"18ba\"\ntrace = \"" +
                     trace + "\"\n")
                    .replace(rule("").find("1ba"), 3, "5ba")) == 0);
  CHECK(run.digest() == undisturbed());
  CHECK(traced(trace) == Steps{2, 7, 12, 17});
  const TrialReader trial = run.trial();
  CHECK(trial.steps(Mode::train) == Steps{0, 1, 2, 6, 7, 10, 12, 17, 18});
  CHECK(trial.record(Mode::train, 10)->find("fc1.weight") != nullptr);
  CHECK(trial.record(Mode::train, 12)->find("fc1.weight") == nullptr);
  CHECK(trial.record(Mode::train, 12)->find("loss_output_0") != nullptr);
  CHECK(trial.record(Mode::train, 7)->find("gradient/fc1.weight")->statistics);
  CHECK_FALSE(
      trial.record(Mode::train, 7)->find("gradient/fc1.weight")->value.defined());  // for the rule alone
  CHECK(trial.record(Mode::train, 7)->find("gradient/fc2.weight") == nullptr);
  CHECK_THAT(test::read_file(trace), Contains("gradient/fc1.weight="));
}

TEST_CASE("a rule that fires is told, acts once, and the run goes on") {
  Trained run;
  const std::string notice = run.folder() / "notice";
  REQUIRE(run.train(head + rule("fire_at = 5\nnotify = 'echo \"$RULE/$STEP/$MESSAGE/$RUN\" > " + notice +
                                "'\n")) == 0);
  CHECK(run.digest() == undisturbed());
  const auto fired = run.journal("rule_fired");
  REQUIRE(fired.size() == 1);
  CHECK_THAT(fired[0], Contains("probe at step 5 of TRAIN: fires as it was told") &&
                           Contains("[loss_output_0]") && Contains("action: report"));
  CHECK_THAT(run.log(), Contains("rule probe at step 5 of TRAIN"));
  CHECK(test::read_file(notice) == "probe/5/fires as it was told/" + run.directory() + "\n");
  Trained again;
  REQUIRE(again.train(head + rule("fire_at = 20\nrepeat = true\n")) == 0);
  CHECK(again.journal("rule_fired").size() == 4);
}

TEST_CASE("a rule stops the run with a checkpoint; a user who resumes it wants it to go on") {
  for (const std::string action : {"stop", "checkpoint_and_stop"}) {
    Trained run;
    const std::vector<std::string> longer = {"trainer.max_duration=100000ba", "checkpoint.interval=100000ba",
                                             "trainer.eval_interval=100000ba", "logging.sinks=[]"};
    REQUIRE(run.train(head + rule("fire_at = 50\naction = \"" + action + "\"\n"), longer) == 0);
    CHECK(run.result()["status"] == "stopped");
    const std::int64_t steps = run.result()["steps"];
    CHECK(steps > 50);
    CHECK(steps < 100000);
    CHECK_THAT(run.journal("stop_run").at(0), Contains("rule probe at step 50"));
    CHECK(run.journal("checkpoint").size() == (action == "stop" ? 0 : 1));
    CHECK(fs::exists(run / "checkpoints/latest"));

    std::vector<std::string> on = longer;
    on[0] = "trainer.max_duration=" + std::to_string(steps + 20) + "ba";
    on.push_back("run.resume=must");
    REQUIRE(run.train(head + rule("fire_at = 50\naction = \"" + action + "\"\n"), on) == 0);
    CHECK(run.result()["status"] == "completed");
    CHECK(run.result()["steps"] == steps + 20);
  }
}

TEST_CASE("the run stops within two steps of the verdict") {
  const Folder folder;
  const std::string trace = folder / "trace";
  std::string text = head;
  text.replace(text.find("[8, 16, 3]"), 10, "[8, 500, 500, 3]");
  text.replace(text.find("\"24ba\""), 6, "\"9999ba\"");
  test::LiveRun run(text + rule("fire_at = 9\naction = \"stop\"\n") + "[recorder]\nsave = false\n",
                    registry());
  std::int64_t seen = -1;
  run.on_safe_point = [&] {
    if (seen >= 0) return;
    State state{.owner = "rule", .version = {}, .scalars = {}, .tensors = {}};
    for (train::ActivePlugin& plugin : run->plugins())
      if (plugin.slot().kind == "rule") state = plugin.state();
    if (StateReader(state).boolean("fired")) seen = run->clock().step;
  };
  run.fit();
  REQUIRE(seen >= 10);
  CHECK(run->clock().step - seen <= 2);
}

TEST_CASE("a rule scales the learning rate from then on, beyond a resume") {
  Trained run;
  const std::string text = head + rule("fire_at = 3\naction = \"lr_scale\"\nlr_scale = 0.5\n");
  REQUIRE(run.train(text, {"trainer.max_duration=2000ba", "trainer.max_wall_time=0.4s"}) == 75);
  const std::int64_t before = run.result()["steps"];
  REQUIRE(run.journal("lr_scale").size() == 1);
  CHECK_THAT(run.journal("lr_scale").at(0), Contains("multiplied by 0.5"));
  REQUIRE(run.train(text, {"trainer.max_duration=2000ba"}) == 0);
  CHECK(run.journal("lr_scale").size() == 1);
  const std::vector<double> lr = run.metric("lr");
  REQUIRE(lr.size() == 2000);
  CHECK(lr.front() == 0.01);
  CHECK(lr.at(static_cast<std::size_t>(before) - 1) == 0.005);
  CHECK(lr.at(static_cast<std::size_t>(before)) == 0.005);
  CHECK(lr.back() == 0.005);
}

TEST_CASE("a rule has the next step skipped, or a plugin swapped") {
  Trained run;
  REQUIRE(run.train(head + dense + "collections = [{ name = \"weights\" }]\n" +
                        rule("fire_at = 3\naction = \"skip_step\"\n"),
                    {"trainer.max_duration=500ba"}) == 0);
  REQUIRE(run.journal("skip_step").size() == 1);
  const TrialReader trial = run.trial();
  int unmoved = 0;
  for (std::int64_t step = 0; step + 1 < 500; ++step)
    unmoved += at::equal(trial.record(Mode::train, step)->find("fc1.weight")->value,
                         trial.record(Mode::train, step + 1)->find("fc1.weight")->value);
  CHECK(unmoved == 1);

  Trained other;
  REQUIRE(
      other.train(
          head +
              rule("fire_at = 3\naction = \"swap\"\nswap = { slot = \"optimizer\", type = \"adamw\", set = "
                   "[\"lr=0.002\"] }\n"),
          {"trainer.max_duration=2000ba"}) == 0);
  REQUIRE(other.journal("swap").size() == 1);
  CHECK_THAT(other.journal("swap").at(0), Contains("optimizer: adamw"));
  CHECK(other.metric("lr").back() == 0.002);
}

TEST_CASE("with dry_run nothing is written, and nothing is done") {
  Trained run;
  REQUIRE(run.train(head + dense + "dry_run = true\n" + rule("fire_at = 3\naction = \"stop\"\n")) == 0);
  CHECK(run.digest() == undisturbed());
  CHECK_THAT(run.journal("rule_fired").at(0), Contains("action: stop, not taken"));
  CHECK_FALSE(fs::exists(run / "trial"));
}

TEST_CASE("a run that is interrupted at every other step leaves one trial without a gap") {
  const std::string text = head + dense + "collections = [{ name = \"gradients\", reductions = [\"l2\"] }]\n";
  Trained whole, cut;
  const auto with_rule = [&](const Trained& run) {
    return text + rule("watch = \"gradients\"\ntrace = \"" + (run.folder() / "trace") + "\"\n");
  };
  REQUIRE(whole.train(with_rule(whole)) == 0);
  int starts = 0;
  for (int code = 75; code == 75; ++starts) {
    REQUIRE(starts < 100);
    // The first step is the last, and what comes after the last checkpoint is done again.
    code = cut.train(with_rule(cut), {"trainer.max_wall_time=0.000001s"});
    REQUIRE((code == 75 || code == 0));
  }
  CHECK(starts >= 20);
  CHECK(cut.digest() == whole.digest());
  const TrialReader a = whole.trial(), b = cut.trial();
  CHECK(b.steps(Mode::global) == a.steps(Mode::global));
  for (const std::int64_t step : a.steps(Mode::train)) {
    const auto left = a.record(Mode::train, step), right = b.record(Mode::train, step);
    REQUIRE(left->tensors.size() == right->tensors.size());
    CHECK(left->step == right->step);
    for (const TensorRecord& tensor : left->tensors)
      CHECK(right->find(tensor.name)->numbers().squares == tensor.numbers().squares);
  }
  // The rule saw every step once, knew how many there were, and could look back over each resume.
  CHECK(traced(cut.folder() / "trace") == range(0, 24));
  CHECK(traced(cut.folder() / "trace", 2) == range(1, 25));
  CHECK(traced(cut.folder() / "trace", 1) == traced(whole.folder() / "trace", 1));
}

TEST_CASE("rules and intervals are swapped in a running training, and no record is lost") {
  Trained run;
  const std::string trace = run.folder() / "trace";
  const auto swap = [](int at, const std::string& slot, const std::string& more) {
    return "[[swap]]\nat = \"" + std::to_string(at) + "ba\"\nslot = \"" + slot + "\"\n" + more;
  };
  REQUIRE(run.train(head + "[recorder]\nsave_interval = 5\n" + rule("trace = \"" + trace + "\"\n") +
                    swap(8, "recorder", "save_interval = 2\n") +
                    swap(12, "rules.probe", "every = \"3ba\"\n") +
                    swap(18, "rules.probe", "enabled = false\n")) == 0);
  CHECK(run.digest() == undisturbed());
  Steps expected = range(0, 12);
  for (const std::int64_t step : {12, 15}) expected.push_back(step);
  CHECK(traced(trace) == expected);
  CHECK(traced(trace, 2) == range(1, 15));  // its count goes on
  CHECK(run.trial().steps(Mode::train) == [&] {
    Steps all = expected;
    for (const std::int64_t step : {14, 16, 18, 20, 22}) all.push_back(step);
    std::sort(all.begin(), all.end());
    return all;
  }());
  CHECK(run.journal("swap").size() == 3);
}

TEST_CASE("rules that throw or sleep do nothing to the run") {
  Trained thrown;
  REQUIRE(thrown.train(head + rule("throw_at = 4\n")) == 0);
  CHECK(thrown.digest() == undisturbed());
  CHECK_THAT(thrown.log(), Contains("probe: thrown at step 4") && Contains("thrown at step 6") &&
                               Contains("3 times in a row and is switched off") &&
                               !Contains("thrown at step 7"));
  Trained asleep;
  REQUIRE(asleep.train(head + "[recorder]\nqueue = 18\nsave_interval = 1\n" +
                       rule("sleep_at = 4\nseconds = 4\n")) == 0);
  CHECK(asleep.digest() == undisturbed());
  // It slept through the run, which waited for it once at a checkpoint, for a second, and at its end; of the 19
  // records meanwhile those that did not fit were counted. What saves them has a queue as long, which a busy disk
  // does not fill.
  CHECK_THAT(asleep.log(), Contains("rules are behind the checkpoint"));
  CHECK(asleep.trial().steps(Mode::train) == range(0, 24));
  CHECK_THAT(asleep.log(), Contains("records are dropped, as recorder.queue = 18") &&
                               Contains("records were dropped in all"));
  for (const double seconds : asleep.metric("seconds")) CHECK(seconds < 3.0);
}

TEST_CASE(
    "a rule that hangs is left behind by a swap, and called no more; the run and its other rules go on") {
  for (const std::string swap : {"rules.stuck\"\nenabled = false\n", "recorder\"\nsave_interval = 2\n"}) {
    INFO(swap);
    Trained run;
    const std::string stuck = run.folder() / "stuck", other = run.folder() / "other";
    const std::string release = run.folder() / "release";
    const auto named = [](const std::string& id, const std::string& options) {
      return rule("id = \"" + id + "\"\n" + options);
    };
    auto ended = std::async(std::launch::async, [&] {
      return run.train(
          head + "[recorder]\n" +
          named("stuck", "hang_at = 4\ntrace = \"" + stuck + "\"\nrelease = \"" + release + "\"\n") +
          named("other", "trace = \"" + other + "\"\n") + "[[swap]]\nat = \"12ba\"\nslot = \"" + swap);
    });
    const bool in_time = ended.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    const std::vector<std::string> held = test::lines(stuck);
    std::ofstream(release) << "now";
    CHECK(in_time);
    REQUIRE(ended.get() == 0);
    CHECK(run.digest() == undisturbed());
    REQUIRE(run.journal("rule_left_behind").size() == 1);
    CHECK_THAT(run.journal("rule_left_behind").at(0), Contains("rule stuck does not return"));
    CHECK_THAT(run.log(), Contains("rule stuck does not return"));
    // What came while it hung waited in the queue, and was lost with the recorder; the record that it hung in
    // is the one that the other missed.
    Steps seen = range(0, 24);
    seen.erase(seen.begin() + 4, seen.begin() + (swap.starts_with("recorder") ? 12 : 5));
    CHECK(traced(other) == seen);
    // Its object is there until it comes back; what it says then nobody hears, and nobody calls it again.
    CHECK(held.back() == "hangs");
    const auto gone = [&] { return test::lines(stuck).back() == "gone"; };
    for (int i = 0; i < 1000 && !gone(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::vector<std::string> end = test::lines(stuck);
    REQUIRE(end.size() == held.size() + 2);
    CHECK(std::vector(end.end() - 2, end.end()) == std::vector<std::string>{"back", "gone"});
    CHECK_THAT(run.log(), !Contains("it came back"));
  }
}

TEST_CASE("a disk that fills up ends the storing with one message, and nothing else") {
  Trained run;
  fs::create_directories(run.folder() / "runs");
  config::RunConfig config =
      test::config_of(head + dense + "collections = [{ name = \"weights\" }, { name = \"gradients\" }]\n" +
                          rule("trace = \"" + (run.folder() / "trace") + "\"\n"),
                      {"run.output_dir=" + (run.folder() / "runs/full"), "run.resume=never"}, registry());
  std::vector<std::string> messages;
  std::mutex mutex;
  train::HostOutputs outputs;
  outputs.log = [&](LogLevel, const std::string& message) {
    const std::lock_guard lock(mutex);
    messages.push_back(message);
  };
  train::Run alone(std::move(config), registry(), std::move(outputs));
  alone.build_model();
  {
    const test::FullDisk full(1500);  // an event file takes more
    alone.build_loop({}).fit();
  }
  CHECK(alone.clock().step == 24);
  CHECK(traced(run.folder() / "trace") == range(0, 24));
  int told = 0;
  for (const std::string& message : messages)
    told += message.find("the trial is stored no further, the run and its rules go on") != std::string::npos;
  CHECK(told == 1);
  CHECK_THAT(messages.back(), Contains("records were not stored"));
}

TEST_CASE("the machine and the phases are sampled where a rule looks at them") {
  Trained run;
  const std::string trace = run.folder() / "trace";
  REQUIRE(
      run.train(head + rule("mode = \"global\"\nwatch = \"^(system|profile)/\"\nvalues = true\ntrace = \"" +
                            trace + "\"\n"),
                {"trainer.max_duration=1000000ba", "trainer.max_wall_time=1.3s", "logging.sinks=[]",
                 "checkpoint.interval=100000ba"}) == 75);
  CHECK(traced(trace).size() >= 2);
  for (const char* name : {"system/cpu", "system/memory", "profile/step_seconds", "profile/forward"})
    CHECK_THAT(test::read_file(trace), Contains(name));
  const auto records = run.trial().take();
  const auto sample = std::find_if(records.begin(), records.end(),
                                   [](const auto& each) { return each->mode == Mode::global; });
  REQUIRE(sample != records.end());
  const Statistics steps = (*sample)->find("profile/step_seconds")->numbers();
  CHECK(steps.count > 10);
  CHECK(steps.sum <= (*sample)->seconds);  // it is the first
  CHECK((*sample)->mode_step == 0);
  double parts = 0.0;
  for (const char* part : {"data", "forward", "loss", "backward", "optimizer"}) {
    CHECK((*sample)->find(std::string("profile/") + part)->scalar() > 0.0);
    parts += (*sample)->find(std::string("profile/") + part)->scalar();
  }
  CHECK(parts > 0.3 * steps.sum);
  CHECK(parts <= 1.01 * steps.sum);
}

namespace {

/// The made library of NVIDIA's, by its name for whoever asks for that from here on.
class MadeLibrary {
 public:
  MadeLibrary()
      : library_(::dlopen(TRAINYARD_BINARY_DIR "/tests/made/libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    REQUIRE(library_ != nullptr);
    gpus_ = static_cast<test::MadeGpus*>(::dlsym(library_, "made_gpus"));
    REQUIRE(gpus_ != nullptr);
  }
  ~MadeLibrary() { ::dlclose(library_); }
  MadeLibrary(const MadeLibrary&) = delete;
  MadeLibrary& operator=(const MadeLibrary&) = delete;
  test::MadeGpus* operator->() const { return gpus_; }

 private:
  void* library_;
  test::MadeGpus* gpus_ = nullptr;
};

/// Trains long enough for as many samples, and gives all that were taken.
std::vector<std::shared_ptr<const StepRecord>> sampled(Trained& run, const std::string& rules,
                                                       std::size_t enough,
                                                       std::vector<std::string> sets = {}) {
  const std::string seconds = std::to_string(static_cast<double>(enough) * 0.5 + 1.5);
  sets.insert(sets.end(), {"trainer.max_duration=1000000ba", "trainer.max_wall_time=" + seconds + "s",
                           "logging.sinks=[]", "checkpoint.interval=100000ba"});
  REQUIRE(run.train(head + rules, sets) == 75);
  std::vector<std::shared_ptr<const StepRecord>> records = run.trial().take();
  std::erase_if(records, [](const auto& each) { return each->mode != Mode::global; });
  REQUIRE(records.size() >= enough);
  for (std::size_t i = 0; i < records.size(); ++i)  // none is lost
    CHECK(records[i]->mode_step == static_cast<std::int64_t>(i));
  for (std::size_t i = 1; i < records.size(); ++i) CHECK(records[i]->step >= records[i - 1]->step);
  return records;
}

bool any_contains(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("rules see what the GPUs do") {
  const MadeLibrary gpus;
  gpus->count = 2;
  gpus->use[0] = 95, gpus->use[1] = 5;
  gpus->used[0] = gpus->used[1] = 200;
  gpus->growth = 100;
  const std::string rules =
      "[[rules]]\ntype = \"low_gpu_utilization\"\npatience = 1\n"
      "[[rules]]\ntype = \"gpu_memory_increase\"\npatience = 1\nwindow = 1\nincrease = 9.0\n"
      "[[rules]]\ntype = \"cpu_bottleneck\"\npatience = 1\ncpu_threshold = 0.0\n"
      "[[rules]]\ntype = \"batch_size\"\npatience = 1\ncpu_threshold_p95 = 100.0\n"
      "gpu_threshold_p95 = 96.0\ngpu_memory_threshold_p95 = 90.0\n";
  Trained run;
  const auto records = sampled(run, rules, 3);
  double before = 10.0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto values = [&](const char* name) {
      const TensorRecord* tensor = records[i]->find(name);
      REQUIRE(tensor != nullptr);
      REQUIRE(tensor->value.numel() == 2);
      return std::pair(tensor->value[0].item<double>(), tensor->value[1].item<double>());
    };
    CHECK(values("system/gpu") == std::pair(95.0, 5.0));
    const double memory = values("system/gpu_memory").first;
    CHECK(memory == Approx(before + 10.0));  // 100 of 1000 more with every look
    before = memory;
  }
  const std::vector<std::string> fired = run.journal("rule_fired");
  CHECK(any_contains(fired, "system/gpu/1: it is used too little: percentile 95 is 5 %"));
  CHECK(any_contains(fired, "it grew from 20 to 30 %, expected at most 9 points more"));
  CHECK(any_contains(fired, "a GPU was below 10 % while system/cpu was above 0 %"));
  const TensorRecord* const cpu = records[1]->find("system/cpu");  // the first that has it
  REQUIRE(cpu != nullptr);
  if (cpu->value.mean().item<double>() < 100.0)
    CHECK(any_contains(fired, "try a larger batch"));
  else
    WARN("all cores are busy with something else: batch_size is not checked");
  CHECK(gpus->opened == 0);
}

TEST_CASE("a flood of records crowds no sample out") {
  Trained run;
  sampled(run, "[recorder]\nsystem = true\nqueue = 1\n", 3, {"trainer.eval_interval=1ba"});
  CHECK_THAT(run.log(), Contains("records are dropped"));
}

TEST_CASE("without a driver there are no GPUs, and no word about it") {
  const MadeLibrary gpus;
  gpus->init = 9;  // NVML_ERROR_DRIVER_NOT_LOADED
  gpus->count = 2;
  Trained run;
  const auto records = sampled(run, "[[rules]]\ntype = \"low_gpu_utilization\"\npatience = 1\n", 1);
  for (const auto& record : records) {
    CHECK(record->find("system/gpu") == nullptr);
    CHECK(record->find("system/gpu_memory") == nullptr);
  }
  CHECK(run.journal("rule_fired").empty());
  CHECK_THAT(run.log(), !Contains("nvml", Catch::CaseSensitive::No));
  CHECK(gpus->opened == 0);
}

TEST_CASE("dataloader knows how many threads load data") {
  for (const double most : {1.0, 1e6}) {
    const std::string rule =
        "[[rules]]\ntype = \"dataloader\"\nmin_threshold = 0.0\nmax_threshold = " + std::to_string(most) +
        "\n";
    Trained run;
    const auto records = sampled(run, rule, 1, {"data.workers=4"});
    for (const auto& record : records) {
      REQUIRE(record->find("profile/loader_workers") != nullptr);
      CHECK(record->find("profile/loader_workers")->scalar() == 4.0);
    }
    CHECK(any_contains(run.journal("rule_fired"), "4 threads load data on ") == (most == 1.0));
  }
}

TEST_CASE("what cannot be recorded is refused in words") {
  const auto refused = [](const std::string& more) {
    Trained run;
    try {
      run.train(head + more);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return run.result()["error"].is_string() ? run.result()["error"].get<std::string>() : std::string();
  };
  CHECK_THAT(refused("[recorder]\ncollections = [{ name = \"mine\" }]\n"),
             Contains("\"mine\" is no collection that is known"));
  CHECK_THAT(refused("[recorder]\ncollections = [{ name = \"weights\" }, { name = \"weights\" }]\n"),
             Contains("is there twice"));
  CHECK_THAT(refused("[recorder]\ncollections = [{ name = \"mine\", include_regex = [\"(\"] }]\n"),
             Contains("\"(\" is no expression"));
  CHECK_THAT(refused(rule("watch = \"(\"\n")), Contains("rules.probe") && Contains("is no expression"));
  CHECK_THAT(refused("[recorder]\nsave_interval = 0\n"), Contains("recorder.save_interval"));
  CHECK_THAT(refused("[recorder]\ncollections = [{ name = \"weights\", reductions = [\"median\"] }]\n"),
             Contains("median"));
}

TEST_CASE(
    "who watches tensors that an executor never shows is told which, once, in the log and in the journal") {
  const auto missed = [](const std::string& watching, const std::string& executor) {
    Trained run;
    REQUIRE(run.train(head + watching + "[executor]\ntype = " + executor) == 0);
    std::vector<std::string> why = run.journal("not recorded");
    for (std::string& each : why) {
      CHECK_THAT(run.log(), Contains(each));
      const std::string end = ": the network or the executor has none";
      REQUIRE(each.ends_with(end));
      each.erase(each.size() - end.size());
    }
    return why;
  };
  using Told = std::vector<std::string>;
  const auto watching = [](const std::string& type, const std::string& options) {
    return "[[rules]]\ntype = \"" + type + "\"\nevery = \"2ba\"\n" + options;
  };
  const std::string eager = "\"eager\"\n", array = "\"hfta\"\nmembers = [{}, { set = [\"run.seed=11\"] }]\n",
                    waves = "\"wavelet\"\n", pipeline = "\"pipelined\"\n";
  const std::string exploding = watching("exploding_tensor", ""), zero = watching("all_zero", ""),
                    mixed = watching(
                        "tensor_variance",
                        "max_threshold = 1e9\ntensors = \"^gradient/|^relu1_output_0$|^fc1.weight$\"\n"),
                    of_both = watching("overtraining", "tensors = \"[Ll]oss_output\"\n"),
                    nothing = watching("tensor_variance", "max_threshold = 1e9\ntensors = \"^conv\"\n"),
                    everything = "[recorder]\ncollections = [{ name = \"all\" }]\nsave_interval = 2\n";
  // Losses are recorded where the run file says nothing.
  const std::string by_default = "the collection losses found no losses in training, which it watches";
  for (const std::string& rules : {exploding, zero, mixed, of_both, everything})
    CHECK(missed(rules, eager) == Told());
  CHECK(missed(nothing, eager) == Told{"rules.tensor_variance found none of the tensors that it watches"});
  CHECK(missed(exploding, array) ==
        Told{"rules.exploding_tensor found no gradients in training, which it watches"});
  CHECK(missed(exploding, pipeline) ==
        Told{"rules.exploding_tensor found no gradients in training, which it watches"});
  CHECK(missed(exploding, waves) ==
        Told{"rules.exploding_tensor found no losses in training, which it watches", by_default});
  CHECK(missed(zero, array) == Told{"rules.all_zero found no gradients in training, which it watches"});
  CHECK(missed(zero, waves) == Told{by_default});
  CHECK(missed(mixed, array) == Told{"rules.tensor_variance found no gradients and no tensors of its nodes "
                                     "in training, which it watches"});
  // Evaluations have losses.
  CHECK(missed(of_both, waves) ==
        Told{"rules.overtraining found no losses in training, which it watches", by_default});
  CHECK(
      missed(everything, array) ==
      Told{
          "the collection all found no gradients and no tensors of its nodes in training, which it watches"});
}

TEST_CASE("the loss of a step is the mean over its samples, whatever parts of it an executor runs") {
  const auto losses = [](const std::string& executor, const std::vector<std::string>& sets = {}) {
    Trained run;
    std::vector<std::string> all = {"optimizer.lr=1e-30"};
    all.insert(all.end(), sets.begin(), sets.end());
    REQUIRE(run.train(head + dense + "collections = [{ name = \"losses\" }]\n[executor]\ntype = " + executor,
                      all) == 0);
    std::vector<double> found;
    for (std::int64_t step = 0; step < 24; ++step)
      found.push_back(run.trial().record(Mode::train, step)->find("loss_output_0")->scalar());
    return found;
  };
  const std::vector<double> expected = losses("\"eager\"\n");
  const std::string cut = "data.train.micro_batch_size=4";
  for (const std::vector<double>& found : {losses("\"eager\"\n", {cut}), losses("\"compiled\"\n", {cut}),
                                           losses("\"hfta\"\nmembers = [{}, { set = [\"run.seed=11\"] }]\n"),
                                           losses("\"pipelined\"\nstages = 1\nupdate_size = 5\n")})
    for (std::size_t step = 0; step < expected.size(); ++step)
      CHECK(found[step] == Approx(expected[step]).epsilon(1e-5));
}

}  // namespace recorder_tests
