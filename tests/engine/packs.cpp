#include <catch2/catch.hpp>

#include <trainyard/hook.hpp>
#include <trainyard/schedule.hpp>

#include "core/plugins/elf.hpp"
#include "core/plugins/loader.hpp"
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
