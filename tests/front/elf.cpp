#include "core/plugins/elf.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <trainyard/error.hpp>

#include "core/plugins/manifest_text.hpp"
#include "core/plugins/registry.hpp"
#include "support/command.hpp"
#include "support/folder.hpp"

namespace elf_tests {

using namespace trainyard;
using plugins::ElfFile;

namespace {

const std::string samples = TRAINYARD_SAMPLES;
const std::string seal = TRAINYARD_BINARY_DIR "/bin/trainyard-seal";
const std::string options = samples + "/sealed/liboptions.so";

std::string digest(const std::string& path) {
  return ElfFile(path).digest();
}

}  // namespace

TEST_CASE("the digest is the same before and after sealing and stripping, and tells other code apart") {
  const test::Folder folder;
  const std::string copy = folder / "libcopy.so";
  test::write_file(copy, test::read_file(options));
  const std::string sealed = digest(copy);
  CHECK(sealed == plugins::read(copy).front().digest);

  REQUIRE(test::run("strip -s " + copy).status == 0);
  CHECK(digest(copy) == sealed);
  CHECK(plugins::read(copy).front().digest == sealed);  // the manifest is still there

  REQUIRE(test::run("objcopy --remove-section=.trainyard " + copy).status == 0);
  CHECK(digest(copy) == sealed);
  CHECK(!ElfFile(copy).section(plugins::manifest_section, 1 << 20));

  CHECK(digest(samples + "/sealed/libone.so") != digest(samples + "/sealed/libtwo.so"));
}

TEST_CASE("sealing again replaces the manifest") {
  const test::Folder folder;
  const std::string copy = folder / "libcopy.so";
  test::write_file(copy, test::read_file(options));
  ::chmod(copy.c_str(), 0750);
  REQUIRE(test::run(seal + " " + copy + " " TRAINYARD_SOURCE_DIR "/sdk/include").status == 0);
  const std::string once = test::read_file(copy);
  REQUIRE(test::run(seal + " " + copy + " " TRAINYARD_SOURCE_DIR "/sdk/include").status == 0);
  CHECK(test::read_file(copy) == once);
  CHECK(to_text(plugins::read(copy)) == to_text(plugins::read(options)));
  struct stat status;
  REQUIRE(::stat(copy.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0750);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) ==
        1);  // nothing is left behind
}

TEST_CASE("shared statics are found: P1, P11") {
  CHECK(ElfFile(samples + "/raw/libcounter_a.so").unique_symbols() ==
        std::vector<std::string>{"_ZN6SharedIiE5callsE"});
  CHECK(ElfFile(samples + "/sealed/libcounter_a.so").unique_symbols().empty());
}

TEST_CASE("static initialisers are counted: P17") {
  const auto count = [](const char* name) { return ElfFile(samples + "/sealed/" + name).initialisers(); };
  // A sanitizer adds one of its own to every object.
  CHECK(count("libstatic_map.so") >= count("libone.so"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(count("libone.so") == 1);
  CHECK(count("libstatic_map.so") == 2);
#endif
}

TEST_CASE("the seal tool says what is wrong with a plugin and leaves it as it was") {
  struct Case {
    std::string sample, message;
  };
  const Case cases[] = {
      {"describe_throws", "its describe() threw: no licence file"},
      {"describe_wrong",
       "hook at batch_end: writes grads, the event allows hyper, metrics, control, plugin_own"},
      {"foreign", "exports a trainyard_plugin of another make"},
      {"small", "exports a trainyard_plugin of 16 bytes, this host's has"},
      {"unresolved", "undefined symbol: trainyard_test_nowhere"},
      {"pack_many", "exports a pack of 1000 plugins, expected 1 to 256: end one source with TRAINYARD_PACK("},
      {"pack_none", "exports a pack of 0 plugins"},
      {"pack_small", "exports a trainyard_plugin of 16 bytes, this host's has"},
      {"pack_foreign", "exports a trainyard_plugin of another make"},
      {"pack_twins", "its plugin 2, \"rising\": manifest: `name` is that of another schedule of the pack"},
      {"pack_wrong", "schedule level: option `high`: has the default 100, above its own maximum 1"},
      {"helper", "undefined symbol: trainyard_plugin"},
      {"counter_a", "exports symbols that all plugins of a process would share"},
  };
  const test::Folder folder;
  for (const Case& wrong : cases) {
    INFO(wrong.sample);
    const std::string before = test::read_file(samples + "/raw/lib" + wrong.sample + ".so");
    const std::string copy = folder / "libcopy.so";
    test::write_file(copy, before);
    const test::Output output = test::run(seal + " " + copy + " " TRAINYARD_SOURCE_DIR "/sdk/include");
    CHECK(output.status == 3);
    CHECK(output.text.find(copy + ": error: ") == 0);
    CHECK_THAT(output.text, Catch::Contains(wrong.message));
    CHECK(test::read_file(copy) == before);
  }
  const test::Output alone = test::run(seal);
  CHECK(alone.status == 2);
  CHECK_THAT(alone.text, Catch::StartsWith("usage: trainyard-seal FILE INCLUDE"));
}

}  // namespace elf_tests
