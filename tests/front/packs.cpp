#include <elf.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include <trainyard/error.hpp>

#include "core/plugins/manifest_text.hpp"
#include "core/plugins/registry.hpp"
#include "core/programs/plugins.hpp"
#include "core/runfile/resolve.hpp"
#include "lib/sha256.hpp"
#include "support/folder.hpp"

namespace pack_tests {

using namespace trainyard;
using namespace trainyard::plugins;

namespace {

const std::string sealed = TRAINYARD_SAMPLES "/sealed/lib";
const std::string pack = sealed + "pack.so";

std::vector<std::string> titles(const std::vector<PluginFile>& files) {
  std::vector<std::string> found;
  for (const PluginFile& file : files)
    found.push_back(file.manifest.kind + "/" + file.manifest.name + " " + file.manifest.version);
  return found;
}
const std::vector<std::string> all = {"schedule/rising 1.0.0", "schedule/level 2.0.0", "hook/rising 3.0.0"};

std::string refusal(const std::string& text) {
  try {
    from_text(text);
  } catch (const PluginError& error) {
    return error.what();
  }
  return "taken";
}

/// Seals a text that was changed, as a forger would.
std::string resealed(const std::string& text) {
  const std::string body = text.substr(0, text.rfind("seal = "));
  return body + "seal = {segments = \"" + std::string(64, 'a') + "\", manifest = \"" + lib::Sha256::of(body) +
         "\"}\n";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a pack is sealed and read as several plugins of one file, in the order of its list") {
  const std::vector<PluginFile> read = plugins::read(pack);
  CHECK(titles(read) == all);
  for (std::size_t i = 0; i < read.size(); ++i) {
    CHECK(read[i].place == i);
    CHECK(read[i].path == pack);
    CHECK(read[i].digest == read[0].digest);
    CHECK(read[i].build == read[0].build);
  }
  const std::string text = to_text(read);
  CHECK(text.find("\nseal = {") == text.rfind("\nseal = {"));  // one for all of them
  CHECK(titles(from_text(text)) == all);
  CHECK(to_text(from_text(text)) == text);
  // A single plugin has no list: its text is as it was before there were packs.
  CHECK(to_text(plugins::read(sealed + "options.so")).find("\nplugins = ") == std::string::npos);
  CHECK(to_text(plugins::read(sealed + "options.so"))
            .starts_with("kind = \"schedule\"\nrevision = 1\nname = \"options\"\n"));
}

TEST_CASE("a changed pack is refused whole, and what is wrong names the plugin") {
  const std::string text = to_text(plugins::read(pack));
  int taken = 0;
  for (std::size_t i = 0; i < text.size(); i += 3) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    taken += refusal(changed) == "taken" ? 1 : 0;  // another digest of the code, which a load finds
  }
  CHECK(taken <= 64);
  CHECK(refusal(text.substr(0, text.size() / 2)) ==
        "its manifest does not end with a seal; build the plugin again");
  CHECK(refusal(replaced(text, "level", "lever")) ==
        "its manifest was changed after it was sealed; build the plugin again");
  CHECK(refusal(resealed(text)) == "taken");
  CHECK(refusal(resealed(replaced(text, "\"level\"", "\"rising\""))) ==
        "its plugin 2, \"rising\": manifest: `name` is that of another schedule of the pack: give one of "
        "them another");
  CHECK(
      refusal(resealed(replaced(text, "{kind = \"hook\", revision = 1", "{kind = \"hook\", revision = 9"))) ==
      "its plugin 3, \"rising\": its kind is hook/9, this host runs hook/1; rebuild it against this host's "
      "SDK");
  CHECK(refusal(resealed(replaced(text, "name = \"level\", ", ""))) ==
        "its plugin 2, \"\": manifest: `name` is missing");
  CHECK_THAT(refusal(resealed(replaced(text, "default = 100.0", "default = 100.0, colour = 3"))),
             Catch::StartsWith("its plugin 2, \"level\": options[") &&
                 Catch::EndsWith("]: `colour` is not known to this host"));
  const std::size_t begin = text.find("plugins = ["), end = text.find("\nbuild = ");
  REQUIRE(begin == 0);
  CHECK(refusal(resealed("plugins = []" + text.substr(end))) ==
        "manifest: `plugins` is empty, expected the plugins of a pack");
  CHECK(refusal(resealed("plugins = [3]" + text.substr(end))) ==
        "its plugin 1, \"\": manifest: `plugins` is of type integer, expected table");
  CHECK(refusal(resealed("kind = \"hook\"\n" + text)) == "manifest: `kind` is not known to this host");
}

TEST_CASE("a registry finds each plugin of a pack, and says where two of a name are") {
  const test::Folder folder;
  const std::string path = folder / "libfamily.so";
  test::write_file(path, test::read_file(pack));
  const Registry registry = Registry::scan({folder.path()});
  CHECK(titles(registry.files()) == all);
  CHECK(registry.find("schedule", "level").size() == 1);
  CHECK(registry.find("schedule", "rising").size() == 1);
  CHECK(registry.find("hook", "rising").front()->place == 2);
  CHECK(registry.find("hook", "level").empty());
  CHECK(registry.find("schedule", "family").empty());

  test::write_file(folder / "libother.so", test::read_file(pack));
  const std::string run = folder / "run.toml";
  test::write_file(run, "schema = 1\n[schedule]\ntype = \"level\"\n");
  const std::string text =
      config::resolve(config::load({run}, {}, {}), Registry::scan({folder.path()})).findings.text();
  CHECK_THAT(text, Catch::Contains("more than one file provides the schedule plugin \"level\": " + path +
                                   " (2.0.0), " + folder.path() + "/libother.so (2.0.0)"));
}

TEST_CASE("a damaged pack is refused whole, and the run file says so") {
  const test::Folder folder;
  const std::string path = folder / "libfamily.so", run = folder / "run.toml";
  std::string bytes = test::read_file(pack);
  auto& header = *reinterpret_cast<Elf64_Ehdr*>(bytes.data());
  auto* const sections = reinterpret_cast<Elf64_Shdr*>(bytes.data() + header.e_shoff);
  const char* const names = bytes.data() + sections[header.e_shstrndx].sh_offset;
  for (int i = 0; i < header.e_shnum; ++i)
    if (std::strcmp(names + sections[i].sh_name, ".trainyard") == 0) sections[i].sh_size -= 100;
  test::write_file(path, bytes);
  test::write_file(run, "schema = 1\n[schedule]\ntype = \"level\"\n");
  const Registry registry = Registry::scan({folder.path()});
  CHECK(registry.files().empty());
  REQUIRE(registry.refusals().size() == 1);
  CHECK_THAT(registry.refusals()[0].message, Catch::StartsWith(path + ": "));
  const std::string text = config::resolve(config::load({run}, {}, {}), registry).findings.text();
  CHECK_THAT(text, Catch::Contains("no schedule plugin is called \"level\"") &&
                       Catch::Contains("1 file was refused where it was looked for:\n  " + path + ": "));
}

TEST_CASE("plugins list and inspect show each plugin of a pack") {
  const Registry registry = Registry::scan({TRAINYARD_SAMPLES "/sealed"});
  std::ostringstream listed, whole, one, json, errors;
  cli::plugins_list(registry, "schedule", cli::Format::text, listed);
  CHECK_THAT(listed.str(), Catch::Contains("level") && Catch::Contains("rising") && !Catch::Contains("hook"));
  CHECK(cli::plugins_inspect(registry, pack, cli::Format::text, whole, errors) == ExitCode::done);
  CHECK_THAT(whole.str(), Catch::StartsWith("schedule/rising 1.0.0\n") &&
                              Catch::Contains("\nschedule/level 2.0.0\n") &&
                              Catch::Contains("\nhook/rising 3.0.0\n"));
  CHECK(cli::plugins_inspect(registry, "level", cli::Format::text, one, errors) == ExitCode::done);
  CHECK_THAT(one.str(), Catch::StartsWith("schedule/level 2.0.0\n") && Catch::Contains(pack) &&
                            !Catch::Contains("rising"));
  CHECK(cli::plugins_inspect(registry, pack, cli::Format::json, json, errors) == ExitCode::done);
  CHECK(nlohmann::json::parse(json.str()).size() == 3);
  CHECK(errors.str().empty());
}

}  // namespace pack_tests
