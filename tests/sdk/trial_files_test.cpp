// A trial in files: what is written is read again, at any moment, by any number of workers.
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/formats/event_file.hpp>
#include <trainyard/formats/trial_files.hpp>

#include "support/folder.hpp"

namespace trial_files_tests {

using namespace trainyard;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

StepRecord record(std::int64_t step, Mode mode = Mode::train, std::int64_t mode_step = -1) {
  StepRecord made{.mode = mode,
                  .mode_step = mode_step < 0 ? step : mode_step,
                  .step = step,
                  .seconds = 0.5 * static_cast<double>(step)};
  at::Tensor weight = at::arange(6, at::kFloat).reshape({2, 3}) + static_cast<double>(step);
  made.tensors.push_back({"gradient/a", {2, 3}, statistics(weight * 0.1), {}});
  const at::Tensor loss = at::full({}, 1.0 / static_cast<double>(step + 1), at::kDouble);
  made.tensors.push_back({"loss_output_0", {}, statistics(loss), loss});
  made.tensors.push_back({"weight", {2, 3}, {}, weight});
  return made;
}

Stored stored(const TensorRecord& tensor) {
  if (tensor.name == "weight") return {.value = true, .reductions = {}};
  return {.value = false, .reductions = {"mean", "abs_max", "nonfinite"}};
}

const std::vector<SavedCollection> saved = {
    {{"gradients", {"^gradient/"}}, {.save_interval = 2}, {"mean", "abs_max", "nonfinite"}}};

}  // namespace

TEST_CASE("what is saved when") {
  const auto steps = [](const SaveConfig& config, std::int64_t last) {
    std::vector<std::int64_t> due, by_next;
    for (std::int64_t step = 0; step <= last; ++step)
      if (config.due(step)) due.push_back(step);
    for (std::int64_t step = config.next(0); step <= last; step = config.next(step + 1))
      by_next.push_back(step);
    CHECK(due == by_next);
    return due;
  };
  using Steps = std::vector<std::int64_t>;
  CHECK(steps({.save_interval = 100, .end_step = 200}, 400) == Steps{0, 100});
  CHECK(steps({.save_interval = 100, .end_step = 201}, 400) == Steps{0, 100, 200});
  CHECK(steps({.save_interval = 100, .start_step = 150}, 350) == Steps{200, 300});
  CHECK(steps({.save_steps = {3, 7}}, 600) == Steps{0, 3, 7, 500});
  CHECK(steps({.save_interval = 100, .start_step = 100, .end_step = 300, .save_steps = {700, 5}}, 800) ==
        Steps{5, 100, 200, 700});
}

TEST_CASE("checksums are those of the standard, and records end in the one that Debugger's reader takes") {
  using namespace event_file;
  CHECK(crc32c("123456789") == 0xe3069283u);
  CHECK(masked_crc("123456789") == 0xc78ab0e5u);
  const std::string length = {24, 0, 0, 0, 0, 0, 0, 0};
  CHECK(masked_crc(length) == 0x224b7fa3u);
  for (const at::Tensor& tensor :
       {at::randn({3, 4}), at::arange(5, at::kLong), at::zeros({0, 2}), at::full({}, 2.5, at::kDouble),
        at::randn({7}).to(at::kHalf), at::randn({2, 2, 2}) > 0, at::arange(3, at::kByte)}) {
    const std::string framed = tensor_record(12.0, 3, "name", tensor, 1, 2);
    const std::string_view event = *front(framed);
    CHECK(masked_crc(event) == masked_crc("0x12345678"));
    CHECK(step_of(event) == 3);
    const at::Tensor back = tensor_of(framed);
    CHECK(back.scalar_type() == tensor.scalar_type());
    CHECK(back.sizes() == tensor.sizes());
    CHECK(at::equal(back, tensor));
    for (std::size_t i = 0; i < framed.size(); i += 7) {
      std::string damaged = framed;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
      CHECK_THROWS_AS(tensor_of(damaged), DataError);
      CHECK_THROWS_AS(tensor_of(framed.substr(0, i)), DataError);
    }
  }
  const at::Tensor brain = at::randn({9}).to(at::kBFloat16);
  CHECK(at::equal(tensor_of(tensor_record(0, 0, "b", brain, 1, 0)), brain.to(at::kFloat)));

  std::string foreign(*front(tensor_record(0, 0, "f", at::ones({2}), 1, 0)));
  const std::size_t type = foreign.find("\x08\x01\x12");  // DT_FLOAT, ahead of the shape
  REQUIRE(type != std::string::npos);
  foreign[type + 1] = 23;  // DT_UINT64
  CHECK_THROWS_WITH(tensor_of(framed(foreign)), Contains("of type 23, which is not known"));
}

TEST_CASE("a record that was written is read the same") {
  const test::Folder folder;
  TrialWriter writer(folder / "trial", saved);
  TrialReader reader(folder / "trial");
  CHECK(reader.take().empty());
  CHECK(reader.has_passed_step(0, Mode::train) == StepState::not_yet_available);
  writer.write(record(0), stored);
  writer.write(record(1, Mode::eval, 0), stored);
  writer.write(record(2, Mode::train, 1), stored);
  writer.write(record(4, Mode::train, 3), stored);
  CHECK(reader.steps(Mode::train).empty());  // not looked at yet
  reader.refresh();
  CHECK(reader.steps(Mode::train) == std::vector<std::int64_t>{0, 1, 3});
  CHECK(reader.steps(Mode::global) == std::vector<std::int64_t>{0, 1, 2, 4});
  CHECK((reader.modes() == std::vector<Mode>{Mode::train, Mode::eval}));
  CHECK(reader.tensor_names() == std::vector<std::string>{"gradient/a", "loss_output_0", "weight"});
  CHECK(reader.tensor_names("gradients") == std::vector<std::string>{"gradient/a"});
  CHECK(reader.tensor_names("^l") == std::vector<std::string>{"loss_output_0"});

  const auto there = reader.record(Mode::eval, 0);
  const StepRecord expected = record(1, Mode::eval, 0);
  CHECK(there->step == 1);
  CHECK(there->seconds == 0.5);
  REQUIRE(there->tensors.size() == 3);
  const Statistics a = *there->find("gradient/a")->statistics, b = *expected.find("gradient/a")->statistics;
  CHECK(a.count == b.count);
  CHECK(a.sum == b.sum);  // to the bit
  CHECK(a.deviation == b.deviation);
  CHECK(a.abs_minimum == b.abs_minimum);
  CHECK(at::equal(there->find("weight")->value, expected.find("weight")->value));
  CHECK(there->find("loss_output_0")->scalar() == 0.5);
  CHECK(there->find("gradient/a")->shape == std::vector<std::int64_t>{2, 3});

  CHECK(reader.has_passed_step(1, Mode::train) == StepState::available);
  CHECK(reader.has_passed_step(2, Mode::train) == StepState::unavailable);
  CHECK(reader.has_passed_step(9, Mode::train) == StepState::not_yet_available);
  CHECK_THROWS_WITH(reader.record(Mode::train, 2), Contains("step 2 of TRAIN was not saved"));
  CHECK_THROWS_WITH(reader.record(Mode::train, 9), Contains("is not there yet"));
  CHECK_THROWS_WITH(reader.wait_for_steps({2}, Mode::train, 0.0), Contains("later ones are there"));
  CHECK_THROWS_WITH(reader.wait_for_steps({9}, Mode::train, 0.05), Contains("did not come within"));
  CHECK(reader.take().size() == 4);
  CHECK(reader.take().empty());
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    writer.write(record(10, Mode::train, 9), stored);
    writer.end();
  });
  reader.wait_for_steps({9}, Mode::train, 20.0);
  later.join();
  reader.refresh();
  CHECK(reader.ended());
  CHECK(reader.take().size() == 1);
  CHECK_THROWS_WITH(reader.wait_for_steps({11}, Mode::train, 5.0), Contains("the run is over"));
  CHECK_THROWS_WITH(TrialReader(folder.path()), Contains("holds no trial"));
}

TEST_CASE("a collection keeps neither tensors nor histograms unless it is told to") {
  const test::Folder folder;
  const TrialWriter writer(folder.path(), saved);
  const std::string told = test::read_file(folder / "collections/000000000/worker_0_collections.json");
  CHECK_THAT(told, Contains("\"save_raw_tensor\": false") && Contains("\"save_histogram\": false"));
}

TEST_CASE("numbers that are not finite survive the files") {
  const test::Folder folder;
  TrialWriter writer(folder.path(), saved);
  StepRecord bad = record(0);
  bad.tensors[0].statistics = statistics(at::tensor({std::nan(""), 1.0, -INFINITY}));
  bad.tensors[0].statistics->minimum = -INFINITY;
  bad.tensors[0].statistics->maximum = INFINITY;
  writer.write(bad, stored);
  const Statistics numbers =
      *TrialReader(folder.path()).record(Mode::train, 0)->find("gradient/a")->statistics;
  CHECK(numbers.nans == 1);
  CHECK(numbers.infinities == 1);
  CHECK(std::isnan(numbers.sum));
  CHECK(numbers.l1 != numbers.l1);
  CHECK(numbers.minimum == -INFINITY);
  CHECK(numbers.maximum == INFINITY);
}

TEST_CASE("steps are taken back, with what was half written and the mark of the end") {
  const test::Folder folder;
  TrialWriter writer(folder.path(), saved);
  for (std::int64_t step = 0; step < 5; ++step) writer.write(record(step), stored);
  StepRecord sample{.mode = Mode::global, .mode_step = 0, .step = 1};
  sample.tensors.push_back({"system/cpu", {2}, {}, at::tensor({50.0, 60.0})});
  for (int i = 0; i < 4; ++i) {
    sample.mode_step = i;
    sample.step = i + 1;
    writer.write(sample, stored);
  }
  writer.end();
  folder.write("index/000000000/000000000001_worker_0.json.tmp", "{");
  folder.write("events/000000000009/000000000009_worker_0.tfevents.tmp", "half");
  writer.cut(3);
  TrialReader reader(folder.path());
  CHECK_FALSE(reader.ended());
  CHECK(reader.steps(Mode::train) == std::vector<std::int64_t>{0, 1, 2});
  CHECK_FALSE(fs::exists(folder / "events/000000000003"));
  CHECK_FALSE(fs::exists(folder / "events/000000000009"));
  CHECK_FALSE(fs::exists(folder / "index/000000000/000000000001_worker_0.json.tmp"));
  const auto records = reader.take();
  CHECK(records.size() == 3 + 2);
  writer.write(record(3), stored);
  reader.refresh();
  CHECK(reader.take().size() == 1);
  writer.cut(0);
  CHECK(TrialReader(folder.path()).steps(Mode::global).empty());
}

TEST_CASE("a step is complete with all workers, when the run is over, or a thousand steps later") {
  const test::Folder folder;
  TrialWriter first(folder.path(), saved, 0, 2), second(folder.path(), saved, 1, 2);
  first.write(record(0), stored);
  second.write(record(0), stored);
  first.write(record(1), stored);
  TrialReader reader(folder.path());
  CHECK(reader.workers() == 2);
  CHECK(reader.steps(Mode::train) == std::vector<std::int64_t>{0});
  CHECK(reader.steps(Mode::train, true) == std::vector<std::int64_t>{0, 1});
  CHECK(reader.has_passed_step(1, Mode::train) == StepState::not_yet_available);
  CHECK(reader.take().size() == 2);
  CHECK(reader.record(Mode::train, 0, 1)->worker == 1);
  for (std::int64_t step = 2; step <= 1002; ++step) first.write(record(step), stored);
  reader.refresh();
  CHECK(reader.steps(Mode::train) == std::vector<std::int64_t>{0, 1, 2});
  CHECK_THROWS_WITH(reader.record(Mode::train, 1, 1), Contains("was not saved by worker 1"));
  second.write(record(1002), stored);
  first.end();
  reader.refresh();
  CHECK(reader.steps(Mode::train).size() == 1003);
}

TEST_CASE("a full disk, and a folder that is none, are told in words") {
  const test::Folder folder;
  folder.write("file", "");
  CHECK_THROWS_WITH(TrialWriter(folder / "file/trial", saved), Contains("cannot make the folder"));
  TrialWriter writer(folder.path(), saved);
  writer.write(record(0), stored);
  {
    const test::FullDisk full(100);
    CHECK_THROWS_AS(writer.write(record(1), stored), DataError);
  }
  writer.write(record(2), stored);
  CHECK(TrialReader(folder.path()).steps(Mode::train) == std::vector<std::int64_t>{0, 2});
  fs::create_directories(folder / "index/000000000/000000000003_worker_0.json");
  CHECK_THROWS_WITH(writer.write(record(3), stored),
                    Contains("cannot rename '") && Contains("worker_0.json.tmp'"));
  fs::remove(folder / "index/000000000/000000000003_worker_0.json");
  folder.write("index/000000000/000000000003_worker_0.json", "{ no JSON");
  CHECK_THROWS_WITH(TrialReader(folder.path()), Contains("is no JSON"));
}

TEST_CASE("a histogram holds every finite value, however large, and its edges enclose them") {
  const event_file::Histogram histogram = event_file::histogram(at::tensor({-1e30, -2.0, 0.0, 3.0, 1e30}));
  CHECK(std::accumulate(histogram.counts.begin(), histogram.counts.end(), 0.0) == 5.0);
  CHECK(histogram.counts.back() == 1.0);
  CHECK(histogram.limits.back() >= 1e30);
  CHECK(histogram.limits.size() == histogram.counts.size());
}

}  // namespace trial_files_tests
