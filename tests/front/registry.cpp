#include "core/plugins/registry.hpp"

#include <elf.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include <trainyard/error.hpp>

#include "core/plugins/elf.hpp"
#include "core/programs/plugins.hpp"
#include "core/runfile/resolve.hpp"
#include "support/folder.hpp"

namespace registry_tests {

using namespace trainyard;
using plugins::Registry;

namespace {

const std::string samples = TRAINYARD_SAMPLES;
const std::string good = samples + "/sealed/liboptions.so";

Elf64_Ehdr& header(std::string& bytes) {
  return *reinterpret_cast<Elf64_Ehdr*>(bytes.data());
}
Elf64_Phdr* segments(std::string& bytes) {
  return reinterpret_cast<Elf64_Phdr*>(bytes.data() + header(bytes).e_phoff);
}
Elf64_Shdr* sections(std::string& bytes) {
  return reinterpret_cast<Elf64_Shdr*>(bytes.data() + header(bytes).e_shoff);
}
/// The one that holds the manifest.
Elf64_Shdr& manifest(std::string& bytes) {
  const char* names = bytes.data() + sections(bytes)[header(bytes).e_shstrndx].sh_offset;
  for (int i = 0; i < header(bytes).e_shnum; ++i)
    if (std::strcmp(names + sections(bytes)[i].sh_name, ".trainyard") == 0) return sections(bytes)[i];
  throw std::logic_error("not sealed");
}

struct Bad {
  std::string name;
  std::function<void(std::string&)> spoil;
  std::string message;
};

/// Made by hand: each breaks one thing that a reader might trust.
const std::vector<Bad>& bad_files() {
  constexpr auto far = ~std::uint64_t{0} - 8;
  static const std::vector<Bad> cases = {
      {"empty", [](std::string& b) { b.clear(); }, "0 bytes, an ELF header has 64"},
      {"text", [](std::string& b) { b = std::string(200, '#'); }, "ELF magic number"},
      {"header_only", [](std::string& b) { b.resize(64); }, "program headers should stand at bytes 64 + "},
      {"half", [](std::string& b) { b.resize(b.size() / 2); }, "is truncated or damaged"},
      {"no_last_byte", [](std::string& b) { b.pop_back(); }, "section headers should stand at"},
      {"thirty_two_bit", [](std::string& b) { header(b).e_ident[EI_CLASS] = ELFCLASS32; },
       "64-bit little-endian"},
      {"big_endian", [](std::string& b) { header(b).e_ident[EI_DATA] = ELFDATA2MSB; },
       "64-bit little-endian"},
      {"other_machine", [](std::string& b) { header(b).e_machine = EM_RISCV; },
       "another machine: ELF machine 243, this one is"},
      {"executable", [](std::string& b) { header(b).e_type = ET_EXEC; }, "ELF type 2, a shared object has 3"},
      {"no_segments", [](std::string& b) { header(b).e_phnum = 0; }, "has no program headers"},
      {"many_segments", [](std::string& b) { header(b).e_phnum = 0xffff; }, "at most 3584 make sense"},
      {"segments_far", [](std::string& b) { header(b).e_phoff = far; }, "program headers should stand at"},
      {"no_sections", [](std::string& b) { header(b).e_shnum = 0; }, "has no manifest"},
      {"many_sections", [](std::string& b) { header(b).e_shnum = 0xfff0; }, "at most 262144 make sense"},
      {"sections_far", [](std::string& b) { header(b).e_shoff = far; }, "section headers should stand at"},
      {"names_index", [](std::string& b) { header(b).e_shstrndx = 0xfff0; }, "should hold names, there are"},
      {"names_far", [](std::string& b) { sections(b)[header(b).e_shstrndx].sh_offset = far; },
       "section names should stand at"},
      {"names_huge", [](std::string& b) { sections(b)[header(b).e_shstrndx].sh_size = far; },
       "at most 1048576 make sense"},
      {"manifest_far", [](std::string& b) { manifest(b).sh_offset = far; },
       "manifest section should stand at"},
      {"manifest_huge", [](std::string& b) { manifest(b).sh_size = 1ull << 40; },
       "at most 262144 make sense"},
      {"manifest_empty", [](std::string& b) { manifest(b).sh_size = 0; }, "does not end with a seal"},
      {"manifest_shifted", [](std::string& b) { manifest(b).sh_offset -= 5; }, "manifest"},
  };
  return cases;
}

}  // namespace

TEST_CASE("files made to mislead a reader are refused, each with its reason") {
  const test::Folder folder;
  const std::string bytes = test::read_file(good);
  for (const Bad& bad : bad_files()) {
    INFO(bad.name);
    std::string spoilt = bytes;
    bad.spoil(spoilt);
    const std::string path = folder / ("lib" + bad.name + ".so");
    test::write_file(path, spoilt);
    const Registry registry = Registry::scan({folder.path()});
    CHECK(registry.files().empty());
    REQUIRE(registry.refusals().size() == 1);
    CHECK(registry.refusals()[0].path == path);
    CHECK_THAT(registry.refusals()[0].message,
               Catch::StartsWith(path + ": ") && Catch::Contains(bad.message));
    std::filesystem::remove(path);
  }
}

TEST_CASE("loadable segments that lie are refused when the code is digested") {
  const test::Folder folder;
  const std::string path = folder / "libcopy.so";
  const auto refusal = [&](const std::function<void(Elf64_Phdr*)>& spoil) -> std::string {
    std::string bytes = test::read_file(good);
    std::vector<Elf64_Phdr*> loads;
    for (int i = 0; i < header(bytes).e_phnum; ++i)
      if (segments(bytes)[i].p_type == PT_LOAD) loads.push_back(&segments(bytes)[i]);
    REQUIRE(loads.size() >= 2);
    spoil(loads[1]);
    test::write_file(path, bytes);
    try {
      return plugins::ElfFile(path).digest();
    } catch (const PluginError& error) {
      return error.what();
    }
  };
  CHECK(refusal([](Elf64_Phdr*) {}) == plugins::read(good).front().digest);
  CHECK_THAT(refusal([](Elf64_Phdr* load) { load->p_offset = 0; }), Catch::Contains("segments overlap"));
  CHECK_THAT(refusal([](Elf64_Phdr* load) { load->p_filesz = 1 << 30; }),
             Catch::Contains("truncated or damaged"));
  CHECK_THAT(refusal([](Elf64_Phdr* load) { load->p_offset = ~std::uint64_t{0}; }),
             Catch::Contains("truncated or damaged"));
}

TEST_CASE("what is no file is refused without hanging") {
  const test::Folder folder;
  REQUIRE(::mkfifo((folder / "libpipe.so").c_str(), 0600) == 0);
  std::filesystem::create_symlink("nowhere", folder / "libdangling.so");
  std::filesystem::create_directory(folder / "libfolder.so");
  std::filesystem::create_symlink("/dev/zero", folder / "libzero.so");
  const Registry registry = Registry::scan({folder.path(), folder / "missing"});
  REQUIRE(registry.refusals().size() == 4);
  CHECK_THAT(registry.refusals()[0].message,
             Catch::Contains("libdangling.so: cannot be opened: No such file"));
  CHECK_THAT(registry.refusals()[1].message, Catch::Contains("libpipe.so: is not a regular file"));
  CHECK_THAT(registry.refusals()[2].message, Catch::Contains("libzero.so: is not a regular file"));
  CHECK_THAT(registry.refusals()[3].message,
             Catch::Contains("missing: this folder of plugins cannot be read"));
}

TEST_CASE("libraries that a plugin brings are no plugins") {
  const test::Folder folder;
  const std::string plugin = folder.write("libcopy.so", test::read_file(good));
  folder.write("libcopy.libs/libfit.so", "an ordinary library has no manifest");
  const Registry registry = Registry::scan({folder.path()});
  CHECK(registry.refusals().empty());
  REQUIRE(registry.files().size() == 1);
  CHECK(registry.files().front().path == plugin);
}

TEST_CASE("a scan runs no code of a plugin: P8") {
  ::unsetenv("TRAINYARD_TEST_OPENED");
  const Registry registry = Registry::scan({samples + "/sealed"});
  CHECK(registry.find("schedule", "constructor").size() == 1);
  CHECK(::getenv("TRAINYARD_TEST_OPENED") == nullptr);
  CHECK(test::read_file("/proc/self/maps").find(samples) == std::string::npos);
}

TEST_CASE("a registry finds by kind and name, and each file once") {
  const Registry registry = Registry::scan({samples + "/sealed", samples + "/../samples/sealed"});
  CHECK(registry.refusals().empty());
  CHECK(registry.find("schedule", "options").size() == 1);
  CHECK(registry.find("schedule", "constant").size() ==
        2);  // libone.so and libtwo.so: for the caller to refuse
  CHECK(registry.find("optimizer", "options").empty());
  const std::vector<std::string> names = registry.names("schedule");
  CHECK(std::is_sorted(names.begin(), names.end()));
  CHECK(std::count(names.begin(), names.end(), "constant") == 1);
  CHECK(registry.names("oven").empty());
}

TEST_CASE("plugins list shows what is there and what was refused") {
  const Registry registry = Registry::scan({samples});
  std::ostringstream text;
  CHECK(cli::plugins_list(registry, "", cli::Format::text, text) == ExitCode::plugin);
  CHECK_THAT(text.str(), Catch::Contains("schedule  options      1.2.3  Every type of option.\n"));
  CHECK_THAT(text.str(), Catch::Contains("\nrefused\n") && Catch::Contains("libhelper.so: has no manifest"));

  std::ostringstream stream;
  CHECK(cli::plugins_list(registry, "", cli::Format::json, stream) == ExitCode::plugin);
  const Registry sound = Registry::scan({samples + "/sealed"});
  CHECK(cli::plugins_list(sound, "", cli::Format::text, text) == ExitCode::done);
  CHECK(cli::plugins_list(sound, "", cli::Format::json, text) == ExitCode::done);
  const auto json = nlohmann::json::parse(stream.str());
  CHECK(json["plugins"].size() == registry.files().size());
  CHECK(json["refused"].size() == registry.refusals().size());
  CHECK(json["plugins"][0].contains("summary"));
}

TEST_CASE("a plugin whose file was refused is called refused, not missing") {
  const test::Folder folder;
  std::string bytes = test::read_file(good);
  bytes.resize(bytes.size() / 2);
  test::write_file(folder / "liboptions.so", bytes);
  const Registry registry = Registry::scan({folder.path()});
  REQUIRE(registry.refused("options") != nullptr);
  CHECK(registry.refused("options")->path == folder / "liboptions.so");
  CHECK(registry.refused("option") == nullptr);
  CHECK(registry.refused("ptions") == nullptr);
  for (const char* what : {"options", "schedule/options"}) {
    std::ostringstream text, errors;
    CHECK(cli::plugins_inspect(registry, what, cli::Format::text, text, errors) == ExitCode::plugin);
    CHECK_THAT(errors.str(), Catch::Contains("liboptions.so: is truncated or damaged"));
  }
  const std::string run = "schema = 1\n[schedule]\ntype = ";
  const auto report = [&](const Registry& all, const std::string& type) {
    const std::string file = folder / "run.toml";
    test::write_file(file, run + "\"" + type + "\"\n");
    return config::resolve(config::load({file}, {}, {}), all).findings.text();
  };
  CHECK_THAT(report(registry, "options"),
             Catch::Contains(":3:8: E301 the schedule plugin \"options\" cannot be used: " + folder.path() +
                             "/liboptions.so: is truncated or damaged"));
  CHECK_THAT(report(registry, "other"), Catch::Contains("no schedule plugin is called \"other\"") &&
                                            Catch::Contains("1 file was refused where it was looked for:"));
  const std::string both = report(Registry::scan({folder.path(), samples + "/sealed"}), "options");
  CHECK_THAT(both, !Catch::Contains("cannot be used") &&
                       Catch::Contains("E308 warning: the schedule plugin \"options\" is that of " + good) &&
                       Catch::Contains("is truncated or damaged"));
}

TEST_CASE("plugins inspect shows every option and hook, by name or file") {
  const Registry registry = Registry::scan({samples + "/sealed"});
  std::ostringstream text, errors;
  CHECK(cli::plugins_inspect(registry, "options", cli::Format::text, text, errors) == ExitCode::done);
  const std::string shown = text.str();
  CHECK_THAT(shown, Catch::StartsWith("schedule/options 1.2.3\nEvery type of option.\n"));
  CHECK_THAT(shown, Catch::Contains("> 0 and < 1") && Catch::Contains("fast | exact") &&
                        Catch::Contains("groups.match") && Catch::Contains("of the rate in two lines\n"));
  CHECK_THAT(shown, Catch::Contains("options of every schedule") && Catch::Contains("model, plugin_own"));
  CHECK_THAT(shown, Catch::Contains("before a; after b, c") && Catch::Contains("100ba"));
  CHECK(errors.str().empty());

  std::ostringstream stream;
  CHECK(cli::plugins_inspect(registry, good, cli::Format::json, stream, errors) == ExitCode::done);
  const auto json = nlohmann::json::parse(stream.str());
  CHECK(json[0]["digest"] == plugins::read(good).front().digest);
  CHECK(json[0]["hooks"].size() == 3);
  CHECK(json[0]["options"].size() == plugins::read(good).front().manifest.options.size());

  std::ostringstream both;
  CHECK(cli::plugins_inspect(registry, "schedule/constant", cli::Format::text, both, errors) ==
        ExitCode::done);
  CHECK_THAT(both.str(), Catch::Contains("libone.so") && Catch::Contains("libtwo.so"));
  std::ostringstream note;
  CHECK(cli::plugins_inspect(registry, "static_map", cli::Format::text, note, errors) == ExitCode::done);
  CHECK_THAT(note.str(), Catch::Contains("static initialiser"));

  CHECK(cli::plugins_inspect(registry, "nothing", cli::Format::text, text, errors) == ExitCode::plugin);
  CHECK_THAT(errors.str(), Catch::Contains("no plugin is named \"nothing\""));
  CHECK(cli::plugins_inspect(registry, samples + "/raw/libhelper.so", cli::Format::text, text, errors) ==
        ExitCode::plugin);
  CHECK_THAT(errors.str(), Catch::Contains("has no manifest"));
}

}  // namespace registry_tests
