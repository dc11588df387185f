// The files of a trial, where the disk is too slow.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "plugins/recorder/trial/store.hpp"
#include "tests/support/folder.hpp"
#include "tests/support/plugin.hpp"

namespace store_tests {

using namespace trainyard;

namespace {

/// Its threads never come to their work.
class StuckHost final : public test::QuietHost {
 public:
  void log(LogLevel, std::string_view message) override { said.emplace_back(message); }
  std::shared_ptr<void> thread(std::string_view, std::function<void(std::stop_token)>) override {
    return std::make_shared<int>();
  }
  std::vector<std::string> said;
};

}  // namespace

TEST_CASE("records that the disk has not taken by the end are told and counted") {
  const test::Folder folder;
  const std::vector<SavedCollection> collections;
  StuckHost host;
  trial::Store store(folder / "trial", collections, false, 8, host);
  store.start();
  for (std::int64_t step = 0; step < 3; ++step)
    CHECK(store.push(std::make_shared<StepRecord>(StepRecord{.mode_step = step, .step = step}), {}));
  CHECK(store.lost() == 0);
  store.stop(std::chrono::milliseconds(1));
  REQUIRE(host.said.size() == 1);
  CHECK_THAT(host.said[0], Catch::StartsWith("3 records were not stored"));
  CHECK(store.lost() == 3);
}

TEST_CASE("samples of the machine have room beside the records of steps, and an end, too") {
  const test::Folder folder;
  const std::vector<SavedCollection> collections;
  StuckHost host;
  trial::Store store(folder / "trial", collections, false, 8, host);
  const auto taken = [&](Mode mode) {
    std::size_t count = 0;
    while (count < 1000 && store.push(std::make_shared<StepRecord>(StepRecord{.mode = mode}), {})) ++count;
    return count;
  };
  CHECK(taken(Mode::train) == 8);
  CHECK(taken(Mode::global) == trial::most_samples);
  CHECK(taken(Mode::eval) == 0);
}

}  // namespace store_tests
