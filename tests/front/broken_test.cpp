// Run files that are wrong: each says in its first lines what the report has to say, and nothing else may be
// in it.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <sstream>

#include "front/run_files.hpp"

namespace broken_tests {

using namespace trainyard;

namespace {

struct Expected {
  std::vector<std::string> findings, hints;
};

Expected expected_of(const std::filesystem::path& file) {
  Expected expected;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line) && line.rfind("# ", 0) == 0;) {
    if (line.rfind("# expect: ", 0) == 0) expected.findings.push_back(line.substr(10));
    if (line.rfind("# hint: ", 0) == 0) expected.hints.push_back(line.substr(8));
  }
  return expected;
}

std::vector<std::filesystem::path> broken_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator("."))
    if (entry.path().extension() == ".toml") files.push_back(entry.path().filename());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("each broken run file is refused with the place, the reason and the mend") {
  std::filesystem::current_path(std::string(TRAINYARD_SOURCE_DIR) + "/tests/front/broken");
  const std::vector<std::filesystem::path> files = broken_files();
  CHECK(files.size() >= 60);
  for (const std::filesystem::path& file : files) {
    const Expected expected = expected_of(file);
    const config::Resolution run = test::resolve({file.string()});
    const std::string report = run.findings.text();
    INFO(file.string() << "\n" << report);
    REQUIRE_FALSE(expected.findings.empty());
    CHECK_FALSE(run.config.has_value());
    CHECK(run.findings.errors() == expected.findings.size());
    for (const std::string& finding : expected.findings) {
      const bool placed = finding[0] >= '0' && finding[0] <= '9';
      CHECK_THAT(report, Catch::Contains(file.string() + (placed ? ":" : ": ") + finding));
    }
    for (const std::string& hint : expected.hints) CHECK_THAT(report, Catch::Contains(hint));
  }
}

TEST_CASE("the file that the broken ones extend is right") {
  std::filesystem::current_path(std::string(TRAINYARD_SOURCE_DIR) + "/tests/front/broken");
  const config::Resolution run = test::resolve({"base/base.toml"});
  INFO(run.findings.text());
  CHECK(run.config.has_value());
  CHECK(run.findings.empty());
}

}  // namespace broken_tests
