// life.*, ranks.*: tests of the plugin's objects, outside of a run.
#include <malloc.h>

#include <filesystem>

#include <trainyard/state.hpp>
#include <trainyard/testing/compressor.hpp>

#include "core/engine/check/groups.hpp"
#include "core/plugins/loader.hpp"

namespace trainyard::check {
namespace {

std::size_t entries(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// The resources that a process holds.
struct Holdings {
  std::size_t bytes = 0, threads = 0, files = 0;

  static Holdings now() {
    const struct mallinfo2 heap = mallinfo2();
    return {heap.uordblks + heap.hblkhd, entries("/proc/self/task"), entries("/proc/self/fd")};
  }
};

/// Returns options with which the plugin can be made: those of its run, or its defaults.
Table options_of(const Subject& subject) {
  if (subject.run) {
    const config::RunConfig config = valid(subject, subject.run->text(), {});
    for (const config::SlotConfig& slot : config.slots)
      if (slot.kind == subject.file.manifest.kind && slot.type == subject.file.manifest.name)
        return slot.options;
  }
  return {};
}

/// Tests a compressor on two ranks with `wrong`, which returns what is wrong; skips other kinds.
Outcome on_two_ranks(const Subject& subject, std::string (*wrong)(const testing::BuiltPlugin& plugin,
                                                                  const Table& options, int ranks)) {
  if (subject.file.manifest.kind != "compressor") return {Verdict::skip, "it is no compressor", {}};
  doing("two ranks sum what it takes");
  const std::string found = wrong({subject.file.path, subject.file.manifest.name}, options_of(subject), 2);
  return found.empty() ? Outcome{} : failed(found);
}

}  // namespace

Outcome opens(const Subject& subject) {
  doing("it is opened");
  plugins::load(subject.file);
  doing("it is opened a second time");
  plugins::load(subject.file);
  return {};
}

Outcome thousand(const Subject& subject) {
  const plugins::LoadedPlugin code = plugins::load(subject.file);
  const Table options = options_of(subject);
  constexpr std::size_t times = 1000, warm = 100;
  Holdings before;
  for (std::size_t i = 0; i < times; ++i) {
    if (i == warm) before = Holdings::now();
    doing("object " + std::to_string(i + 1) + " is made");
    const plugins::LoadedPlugin::Instance object = code.create(options);
    doing("object " + std::to_string(i + 1) + " is destroyed");
  }
  doing("");
  const Holdings after = Holdings::now();
  const auto each = [&](std::size_t grown) { return std::to_string(grown / (times - warm)); };
  if (after.threads > before.threads)
    return failed("an object leaves a thread behind; start it with host().thread, which joins it");
  if (after.files >= before.files + (times - warm) / 2) return failed("an object leaves a file open");
  constexpr std::size_t slack = 16;  // bytes per object
  if (after.bytes > before.bytes + slack * (times - warm))
    return failed("an object leaves " + each(after.bytes - before.bytes) + " bytes behind");
  return {};
}

Outcome order(const Subject& subject) {
  const plugins::LoadedPlugin code = plugins::load(subject.file);
  const plugins::LoadedPlugin::Instance object = code.create(options_of(subject));
  doing("an object that was only made is saved");
  State state;
  StateWriter writer(state);
  try {
    object.plugin->save(writer);
  } catch (const std::exception&) {
    // The plugin may refuse, but not crash.
  }
  doing("an object that was only made is destroyed");
  return {};
}

Outcome rank_sums(const Subject& subject) {
  return on_two_ranks(subject, testing::wrong_sums);
}

Outcome rank_states(const Subject& subject) {
  return on_two_ranks(subject, testing::wrong_states);
}

}  // namespace trainyard::check
