// Files of NumPy that are damaged; those that are sound are tried in tests/e2e/formats.py against NumPy itself.
#include <catch2/catch.hpp>
#include <trainyard/dataset.hpp>

#include "support/files.hpp"
#include "support/folder.hpp"
#include "support/npz_file.hpp"
#include "support/plugin.hpp"

namespace npy_tests {

using namespace trainyard;
using Catch::Contains;
using test::npy;
using test::table;

namespace {

/// The message of what refuses the options; empty where all samples can be read.
std::string refusal(const Table& options) {
  try {
    const auto data = test::make<Dataset>("npy", options);
    data->open("train");
    for (std::int64_t i = 0; i < data->size(); ++i) data->read(std::vector{i}, {RandomStream(1, "data"), 0});
    return "";
  } catch (const DataError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("npy: a file that is cut off or damaged is refused or read, and never crashes") {
  const test::TempFolder folder;
  const std::string inputs = npy<double>("<f8", "3, 2", {1, 2, 3, 4, 5, 6}),
                    columns = npy<float>(">f4", "3, 2", {1, 2, 3, 4, 5, 6}, 2, true),
                    targets = npy<std::int64_t>("<i8", "3,", {0, 1, 2});
  const std::string labels = folder.write("y.npy", targets);
  for (const bool packed : {false, true}) {
    test::ZipFile zip;
    zip.add("x.npy", inputs, packed);
    zip.add("y.npy", targets, packed, true);
    const std::string archive = zip.file();
    for (const std::string& whole : {inputs, columns, archive}) {
      const auto message = [&](const std::string& bytes) {
        const std::string path = folder.write("x.npy", bytes);
        return refusal(whole == archive ? table({{"inputs", path}})
                                        : table({{"inputs", path}, {"targets", labels}}));
      };
      CHECK(message(whole).empty());
      for (std::size_t size = 0; size < whole.size(); ++size)
        CHECK_THAT(message(whole.substr(0, size)), Contains("x.npy"));
      for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
        std::string bytes = whole;
        bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
        const std::string said = message(bytes);
        CHECK((said.empty() || said.find("x.npy") != std::string::npos));
      }
    }
  }
}

TEST_CASE("npy: a header of an older Python, of a shape beyond the file, and one more byte") {
  const test::TempFolder folder;
  const std::string labels = folder.write("y.npy", npy<std::int64_t>("<i8", "3,", {0, 1, 2}));
  const auto message = [&](const std::string& bytes) {
    return refusal(table({{"inputs", folder.write("x.npy", bytes)}, {"targets", labels}}));
  };
  CHECK(message(npy<float>("<f4", "3L, 2L", {1, 2, 3, 4, 5, 6})).empty());
  CHECK_THAT(message(npy<float>("<f4", "281474976710656, 2", {1})), Contains("its header says no shape"));
  CHECK_THAT(message(npy<float>("<f4", "140737488355328, 2", {1})),
             Contains("it has 4 bytes, expected 1125899906842624 for its shape: is it cut off?"));
  CHECK_THAT(message(npy<float>("<f4", "-3, 2", {1})), Contains("its header says no shape"));
  CHECK_THAT(message(npy<float>("<f4", "3, 2", {1, 2, 3, 4, 5, 6}) + "x"), Contains("it has 25 bytes"));
}

}  // namespace npy_tests
