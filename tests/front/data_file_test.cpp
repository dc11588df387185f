// What tells the data of one rank from that of another.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include <catch2/catch.hpp>

#include "core/rundir/data_file.hpp"
#include "support/folder.hpp"

namespace data_file_tests {

using namespace trainyard;
using report::Facts;

TEST_CASE("ranks hear of the first fact that they do not share, and one that is not there is a value") {
  const auto told = [](const Facts& here, const Facts& there) {
    return report::difference(nlohmann::json(here).dump(), nlohmann::json(there).dump(), "rank 0");
  };
  const Facts both = {{"samples differ", "5"}, {"file differs", "x"}};
  CHECK(told(both, both).empty());
  CHECK(told({{"samples differ", "4"}, {"file differs", "y"}}, both) == "samples differ (4, on rank 0 5)");
  CHECK(told({{"samples differ", "5"}}, both) == "file differs (nothing, on rank 0 x)");
  CHECK(told(both, {{"samples differ", "5"}}) == "file differs (x, on rank 0 nothing)");
}

TEST_CASE("a folder is told from another by names, sizes and content of its files, large ones too") {
  const test::Folder folder;
  const std::string path = folder / "data";
  const OptionSpec option{.name = "path", .type = OptionType::string, .file = true};
  Table options;
  options.set("path", path);
  const auto identity = [&] {
    const Facts facts = report::file_identities({option}, options, plugins::Registry(), {});
    REQUIRE(facts.size() == 1);
    CHECK(facts[0].first == "path");
    return facts[0].second;
  };
  const auto put = [](const std::string& file, std::streamoff at, char byte) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(at);
    stream.put(byte);
  };
  constexpr std::streamoff large = 40 << 20;  // two are more than is read of them
  std::filesystem::create_directories(path + "/below");
  for (const char* name : {"/below/a", "/b"}) {
    std::ofstream(path + name).close();
    std::filesystem::resize_file(path + name, large);
  }
  std::string before = identity();
  CHECK(before.starts_with("2 files of 83886080 bytes, SHA-256 "));
  const auto changed = [&] {
    const std::string last = std::exchange(before, identity());
    return before != last;
  };
  CHECK_FALSE(changed());
  for (const char* name : {"/below/a", "/b"})
    for (const std::streamoff at : {std::streamoff{0}, large - 1}) {
      put(path + name, at, 'x');
      // The first byte of all, in b, and the last one, in below/a, are read; those in the middle may lie between two pieces.
      if ((std::string(name) == "/b") == (at == 0)) CHECK(changed());
    }
  std::filesystem::rename(path + "/below/a", path + "/below/c");
  CHECK(changed());
  CHECK(report::file_identities({option}, options, plugins::Registry(), {"path"}).empty());
}

}  // namespace data_file_tests
