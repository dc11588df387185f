#include <catch2/catch.hpp>
#include <random>

#include <trainyard/hook.hpp>
#include <trainyard/schedule.hpp>

#include "core/plugins/elf.hpp"
#include "core/plugins/loader.hpp"
#include "core/plugins/manifest_text.hpp"
#include "support/folder.hpp"

#include <trainyard/testing/plugin.hpp>

namespace pack_tests {

using namespace trainyard;
using namespace trainyard::plugins;

namespace {

const std::string sealed = TRAINYARD_SAMPLES "/sealed/lib";
const std::string pack = sealed + "pack.so";

double factor(const LoadedPlugin& plugin) {
  const auto instance = plugin.create({});
  return dynamic_cast<Schedule&>(*instance.plugin).factor(SchedulePoint{});
}

std::string refusal(const PluginFile& file) {
  try {
    load(file);
  } catch (const PluginError& error) {
    return error.what();
  }
  return "loaded";
}

}  // namespace

TEST_CASE("the plugins of a pack are loaded with one object, where one of them is there") {
  const std::vector<PluginFile> files = read(pack);
  REQUIRE(files.size() == 3);
  const int before = generations();
  const LoadedPlugin rising = load(files[0]);
  const LoadedPlugin level = load(files[1], &rising), hook = load(files[2], &level);
  CHECK(generations() == before + 1);
  CHECK(level.generation() == rising.generation());
  CHECK(level.manifest().version == "2.0.0");
  CHECK(hook.manifest().kind == "hook");
  CHECK(factor(rising) == 1);
  CHECK(factor(level) == 102);  // the static is of the object
  const auto instance = hook.create({});
  CHECK(dynamic_cast<Hook*>(instance.plugin.get()) != nullptr);
  struct : StepContext {
  } context;
  hook.manifest().hooks[0].call(instance.self, context);
  CHECK(factor(rising) == 4);

  // Another generation has a static of its own.
  const LoadedPlugin fresh = load(files[1]);
  CHECK(generations() == before + 2);
  CHECK(factor(fresh) == 101);
  CHECK(factor(rising) == 5);
}

TEST_CASE("a pack that has not what its seal says is refused") {
  const auto forged = [&](const std::string& path, std::size_t place) {
    PluginFile file = read(pack)[place];
    file.path = path;
    file.digest = ElfFile(path).digest();
    return file;
  };
  const std::string raw = TRAINYARD_SAMPLES "/raw/lib";
  CHECK_THAT(refusal(forged(raw + "pack_many.so", 0)),
             Catch::Contains("exports a pack of 1000 plugins, expected 1 to 256"));
  CHECK_THAT(refusal(forged(raw + "pack_none.so", 0)), Catch::Contains("exports a pack of 0 plugins"));
  CHECK_THAT(refusal(forged(raw + "pack_small.so", 0)),
             Catch::Contains("exports a trainyard_plugin of 16 bytes, this host's has"));
  CHECK_THAT(refusal(forged(raw + "pack_foreign.so", 1)),
             Catch::Contains("a trainyard_plugin of another make"));
  CHECK_THAT(refusal(forged(sealed + "one.so", 1)), Catch::Contains("exports 1 plugins, its seal has more"));
  CHECK_THAT(refusal(forged(raw + "pack_twins.so", 1)),
             Catch::Contains("sealed `name = \"level\"`, described `name = \"rising\"`"));
}

TEST_CASE("500 mutated packs: a scan takes all of the plugins or none, and a load what was sealed") {
  const std::string original = test::read_file(pack);
  const std::string sound = to_text(read(pack));
  std::mt19937 random(11);
  const auto below = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
  };
  const std::size_t manifest = original.find("plugins = [\n"), end = original.find("seal = {", manifest);
  REQUIRE(end != std::string::npos);
  const test::Folder folder;
  const std::string path = folder / "libmutant.so";
  int taken = 0, in_manifest = 0;
  for (int i = 0; i < 500; ++i) {
    std::string bytes = original;
    if (i % 3 == 0)
      bytes.resize(below(bytes.size()));
    else
      for (int each = 0; each < 16; ++each) {
        const std::size_t at = i % 3 == 1 ? below(bytes.size()) : manifest + below(end - manifest);
        bytes[at] = static_cast<char>(below(256));
      }
    test::write_file(path, bytes);
    const Registry registry = Registry::scan({folder.path()});
    REQUIRE(registry.files().size() + 3 * registry.refusals().size() == 3);
    if (registry.files().empty()) continue;
    ++taken;
    in_manifest += i % 3 == 2;
    for (std::size_t place = 0; place < 3; ++place) CHECK(registry.files()[place].place == place);
    const std::string refused = refusal(registry.files()[1]);
    if (refused != "loaded")
      CHECK_THAT(refused, Catch::Contains("truncated or damaged") ||
                              Catch::Contains("its code has SHA-256") || Catch::Contains("is damaged"));
    else
      CHECK(to_text(registry.files()) == sound);
  }
  CHECK(taken > 0);
  CHECK(in_manifest == 0);
}

TEST_CASE("the test kit takes a plugin of a pack by kind, and by name where there are several") {
  testing::Made<Hook> hook(pack);
  CHECK(hook.manifest().version == "3.0.0");
  testing::Made<Schedule> level({pack, "level"}, {{"high", 7.0}});
  CHECK(level->factor(SchedulePoint{}) > 7.0);
  CHECK_THROWS_WITH(testing::Made<Schedule>(pack),
                    Catch::Contains("has 2 plugins of kind schedule, and the test wants one: give its name"));
  CHECK_THROWS_WITH((testing::Made<Hook>({pack, "level"})),
                    Catch::Contains("has 0 plugins of kind hook called \"level\""));
}

}  // namespace pack_tests
