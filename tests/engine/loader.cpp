#include "core/plugins/loader.hpp"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <random>

#include <trainyard/schedule.hpp>
#include <trainyard/scorer.hpp>

#include <trainyard/checkpointer.hpp>
#include <trainyard/codec.hpp>
#include <trainyard/compressor.hpp>
#include <trainyard/dataset.hpp>
#include <trainyard/detector.hpp>
#include <trainyard/dropout.hpp>
#include <trainyard/executor.hpp>
#include <trainyard/hook.hpp>
#include <trainyard/loss.hpp>
#include <trainyard/metric.hpp>
#include <trainyard/model.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/recorder.hpp>
#include <trainyard/sampler.hpp>
#include <trainyard/sink.hpp>
#include <trainyard/study.hpp>
#include <trainyard/tool.hpp>
#include <trainyard/transform.hpp>

#include "core/plugins/elf.hpp"
#include "core/plugins/fingerprint.hpp"
#include "core/plugins/kinds.hpp"
#include "core/plugins/manifest_text.hpp"
#include "support/folder.hpp"

namespace loader_tests {

using namespace trainyard;
using namespace trainyard::plugins;

namespace {

const std::string samples = TRAINYARD_SAMPLES;
const std::string sealed = samples + "/sealed/lib";
const std::string raw = samples + "/raw/lib";

PluginFile file(const std::string& name) {
  return read(sealed + name + ".so").front();
}

double factor(const LoadedPlugin& plugin, const Table& options = {}) {
  const auto instance = plugin.create(options);
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

/// A file of a registry that was never sealed by the tool: as a forger would write it.
PluginFile forged(const std::string& path) {
  PluginFile file = read(sealed + "one.so").front();
  file.path = path;
  file.digest = ElfFile(path).digest();
  return file;
}

/// Runs `work` in a child; the signal that ended it, or 0.
template <class Work>
int signal_of(Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    // The test framework's own handlers would report the signal that is expected here.
    for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGABRT}) ::signal(signal, SIG_DFL);
    ::alarm(10);
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

double call_raw(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(handle != nullptr);
  const auto& entry = *reinterpret_cast<const PluginEntry* (*)()>(::dlsym(handle, "trainyard_plugin"))();
  const std::unique_ptr<Plugin> plugin(make_plugin(entry, manifest_of(entry), {}).plugin);
  return dynamic_cast<Schedule&>(*plugin).factor(SchedulePoint{});
}

bool is_mapped(const std::string& text) {
  return test::read_file("/proc/self/maps").find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("the kinds that the front knows are those of the SDK's headers") {
  const Kind sdk[] = {Dataset::kind,   Sampler::kind,      Model::kind,     Loss::kind,     Metric::kind,
                      Optimizer::kind, Schedule::kind,     Executor::kind,  Dropout::kind,  Hook::kind,
                      Sink::kind,      Checkpointer::kind, Rule::kind,      Recorder::kind, Compressor::kind,
                      Tool::kind,      Study::kind,        Transform::kind, Codec::kind,    Detector::kind,
                      Scorer::kind};
  REQUIRE(std::size(plugins::kinds) == std::size(sdk));
  for (const Kind& kind : sdk) {
    INFO(kind.name);
    const plugins::KindRow* known = plugins::find_kind(kind.name);
    REQUIRE(known != nullptr);
    CHECK(known->kind.revision == kind.revision);
  }
}

TEST_CASE("a plugin is loaded, described and made with its options and hooks") {
  const int before = generations();
  const LoadedPlugin plugin = load(file("options"));
  CHECK(generations() == before + 1);
  CHECK(plugin.generation() == before + 1);
  CHECK(plugin.file().path == sealed + "options.so");
  CHECK(plugin.manifest().name == "options");

  Table group;
  group.set("match", Array{"*.bias"});
  Table options;
  options.set("count", 4);
  options.set("betas", Array{0.5, 0.25});
  options.set("groups", Array{group, group});
  options.set("seed", 3);
  options.set("floor", 0.75);
  const auto instance = plugin.create(options);
  auto& schedule = dynamic_cast<Schedule&>(*instance.plugin);
  CHECK(schedule.factor(SchedulePoint{}) == 4 + 0.25 + 2 + 1000);
  CHECK(schedule.common.floor == 0.75);
  const auto plain = plugin.create({});
  CHECK(dynamic_cast<Schedule&>(*plain.plugin).factor(SchedulePoint{}) == Approx(-3 + 0.999));
  CHECK(dynamic_cast<Schedule&>(*plain.plugin).common.floor == 0.25);

  REQUIRE(plugin.manifest().hooks.size() == 3);
  struct : StepContext {
  } context;
  plugin.manifest().hooks[0].call(instance.self, context);
  CHECK(schedule.factor(SchedulePoint{}) == 4 + 0.25 + 2 + 1000 + 10000);
}

TEST_CASE("what a constructor throws names the plugin and keeps its exit code") {
  const LoadedPlugin plugin = load(file("throws"));
  const auto thrown = [&](const char* what) -> std::pair<ExitCode, std::string> {
    Table options;
    options.set("what", what);
    try {
      plugin.create(options);
    } catch (const Error& error) {
      return {error.code(), error.what()};
    }
    return {ExitCode::done, ""};
  };
  const std::string who = "schedule throws (" + sealed + "throws.so): ";
  CHECK((thrown("data") == std::pair(ExitCode::data, who + "record 7 is bad")));
  CHECK((thrown("foreign") == std::pair(ExitCode::plugin, who + "its constructor threw: index 3")));
  CHECK((thrown("other") ==
         std::pair(ExitCode::plugin, who + "its constructor threw something that is no std::exception")));
}

TEST_CASE("statics shared between plugins: P1, P11") {
  CHECK(call_raw(raw + "counter_a.so") == 1);
  CHECK(call_raw(raw + "counter_b.so") == 2);  // the pitfall: another file, the same static
  CHECK(factor(load(file("counter_a"))) == 1);
  CHECK(factor(load(file("counter_b"))) == 1);
  CHECK(factor(load(file("counter_a"))) == 1);  // nor do two generations of one file share it
}

TEST_CASE("an updated file is the new code, the old one goes on: P2") {
  const test::Folder folder;
  const std::string path = folder / "libconstant.so";
  const auto install = [&](const std::string& from) {
    test::write_file(folder / "new", test::read_file(from));
    std::filesystem::rename(folder / "new", path);
  };
  install(sealed + "one.so");
  CHECK(call_raw(path) == 1);
  install(sealed + "two.so");
  CHECK(call_raw(path) == 1);  // the pitfall: the system's loader knows the path and does not look

  const LoadedPlugin second = load(read(path).front());
  CHECK(factor(second) == 2);
  install(sealed + "one.so");
  const LoadedPlugin first = load(read(path).front());
  CHECK(factor(first) == 1);
  CHECK(factor(second) == 2);
  CHECK(first.generation() > second.generation());
}

TEST_CASE("a file overwritten in place does not reach a running plugin: P3") {
  const test::Folder folder;
  const std::string path = folder / "libconstant.so";
  test::write_file(path, test::read_file(sealed + "one.so"));
  const auto truncate = [&] { std::filesystem::resize_file(path, 0); };
  CHECK(signal_of([&] {
          void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
          const auto entry = reinterpret_cast<const PluginEntry* (*)()>(::dlsym(handle, "trainyard_plugin"));
          truncate();
          entry();
        }) == SIGBUS);  // the pitfall

  test::write_file(path, test::read_file(sealed + "one.so"));
  const LoadedPlugin plugin = load(read(path).front());
  truncate();
  CHECK(factor(plugin) == 1);
  CHECK(!is_mapped(folder.path()));
}

TEST_CASE("nothing of a load stays in the temporary folder") {
  const test::Folder folder;
  const char* before = ::getenv("TMPDIR");
  const std::string restore = before != nullptr ? before : "";
  ::setenv("TMPDIR", folder.path().c_str(), 1);
  CHECK(factor(load(file("one"))) == 1);
  CHECK(std::filesystem::is_empty(folder.path()));
  ::setenv("TMPDIR", (folder / "missing").c_str(), 1);
  CHECK_THAT(refusal(file("one")), Catch::Contains("TMPDIR"));
  restore.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", restore.c_str(), 1);
}

TEST_CASE("a missing symbol is an error at the load, not the end of the process: P7") {
  CHECK_THAT(refusal(forged(raw + "unresolved.so")),
             Catch::Contains("does not load") && Catch::Contains("trainyard_test_nowhere"));
}

TEST_CASE("code runs at the load and not before: P8") {
  ::unsetenv("TRAINYARD_TEST_OPENED");
  const PluginFile constructor = file("constructor");
  CHECK(::getenv("TRAINYARD_TEST_OPENED") == nullptr);
  load(constructor);
  CHECK(::getenv("TRAINYARD_TEST_OPENED") != nullptr);
}

TEST_CASE("a function of the same name elsewhere in the process: P10") {
  REQUIRE(::dlopen((raw + "helper.so").c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr);
  CHECK(call_raw(raw + "collision.so") == 1);  // the pitfall: not the plugin's own
  CHECK(factor(load(file("collision"))) == 2);
}

TEST_CASE("another type behind the symbol is refused: P13") {
  CHECK_THAT(refusal(forged(raw + "foreign.so")), Catch::Contains("a trainyard_plugin of another make"));
  CHECK_THAT(refusal(forged(raw + "small.so")),
             Catch::Contains("a trainyard_plugin of 16 bytes, this host's has"));
  CHECK_THAT(refusal(forged(raw + "helper.so")), Catch::Contains("exports no trainyard_plugin"));
}

TEST_CASE("a description that is not the sealed one is refused") {
  const PluginFile moody = file("moody");
  CHECK(refusal(moody) == "loaded");
  ::setenv("TRAINYARD_TEST_MOOD", "bad", 1);
  CHECK_THAT(refusal(moody),
             Catch::Contains("sealed `summary = \"A good day.\"`, described `summary = \"A bad day.\"`"));
  ::unsetenv("TRAINYARD_TEST_MOOD");
}

TEST_CASE("a file that changed after it was sealed or scanned is refused before it is opened") {
  const test::Folder folder;
  const std::string path = folder / "libconstant.so";
  test::write_file(path, test::read_file(sealed + "one.so"));
  const PluginFile scanned = read(path).front();
  test::write_file(path, test::read_file(sealed + "two.so"));
  CHECK_THAT(refusal(scanned), Catch::StartsWith(path + ": its code has SHA-256 ") &&
                                   Catch::Contains(scanned.digest) && Catch::Contains("since the run began"));
  std::filesystem::remove(path);
  CHECK_THAT(refusal(scanned), Catch::Contains("cannot be copied"));
}

TEST_CASE("1,000 mutated files: what the scan and the digest let pass is what was sealed") {
  const std::string original = test::read_file(sealed + "options.so");
  const PluginFile sound = file("options");
  const std::string sound_text = to_text(sound);
  std::mt19937 random(7);
  const auto below = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
  };
  const auto flip = [&](std::string& bytes, std::size_t from, std::size_t to, int count) {
    for (int i = 0; i < count; ++i) bytes[from + below(to - from)] ^= static_cast<char>(1 << below(8));
  };
  const auto scribble = [&](std::string& bytes, std::size_t from, std::size_t to, int count) {
    for (int i = 0; i < count; ++i) bytes[from + below(to - from)] = static_cast<char>(below(256));
  };
  const test::Folder folder;
  const std::string path = folder / "libmutant.so";
  int scanned = 0, digested = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string bytes = original;
    switch (i % 5) {
      case 0: bytes.resize(below(bytes.size())); break;
      case 1: flip(bytes, 0, 4096, 8); break;
      case 2: scribble(bytes, 16, 616, 4); break;
      case 3: flip(bytes, 0, bytes.size(), 64); break;
      case 4: scribble(bytes, bytes.size() - 2000, bytes.size(), 16); break;
    }
    if (bytes == original) continue;
    test::write_file(path, bytes);
    const Registry registry = Registry::scan({folder.path()});
    REQUIRE(registry.files().size() + registry.refusals().size() == 1);
    // A host that listed mutants would show them by these, too: neither may fail otherwise than by a
    // PluginError.
    try {
      const ElfFile elf(path);
      elf.initialisers();
      elf.unique_symbols();
    } catch (const PluginError&) {}
    if (registry.files().empty()) continue;
    ++scanned;
    const PluginFile& mutant = registry.files().front();
    try {
      if (ElfFile(path).digest() != mutant.digest) continue;
    } catch (const PluginError&) {
      continue;
    }
    ++digested;
    // Only bytes that are neither loaded nor read were hit: the manifest is the sealed one, and so is the
    // code.
    INFO("mutant " << i);
    CHECK(to_text(mutant) == sound_text);
    CHECK(factor(load(mutant)) == Approx(-3 + 0.999));
  }
  WARN(scanned << " of 1,000 mutants passed the scan, " << digested << " the digest");
  CHECK(scanned > digested);  // else the digest was not put to the test
  CHECK(digested < 400);
}

}  // namespace loader_tests
