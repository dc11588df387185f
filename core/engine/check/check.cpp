#include "core/engine/check/check.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>

#include <trainyard/error.hpp>

#include "core/check/report.hpp"
#include "core/check/samples.hpp"
#include "core/engine/check/groups.hpp"
#include "core/engine/verbs/reported.hpp"
#include "core/plugins/kinds.hpp"

namespace trainyard::check {
namespace {

namespace fs = std::filesystem;

/// The need of a test: nothing, code that opens, options for an object, a run that trains, or one on 1 rank.
enum class Needs : std::uint8_t { nothing, code, object, run, rank };
struct Test {
  std::string_view name;
  Outcome (*run)(const Subject&);
  Needs needs;
};

constexpr Test functions[] = {
    {"static.seal", seal, Needs::nothing},
    {"static.digest", digest, Needs::nothing},
    {"static.exports", exports, Needs::nothing},
    {"static.initialisers", initialisers, Needs::nothing},
    {"static.libraries", libraries, Needs::nothing},
    {"life.opens", opens, Needs::nothing},
    {"run.trains", trains, Needs::code},
    {"life.thousand", thousand, Needs::object},
    {"life.order", order, Needs::object},
    {"ranks.sums", rank_sums, Needs::object},
    {"ranks.states", rank_states, Needs::object},
    {"run.long", long_run, Needs::run},
    {"run.quiet", quiet, Needs::rank},
    {"options.bounds", bounds, Needs::run},
    {"options.random", random_options, Needs::run},
    {"events.writes", writes, Needs::run},
    {"state.round_trip", round_trip, Needs::rank},
    {"state.truncated", truncated, Needs::rank},
    {"state.random", random_state, Needs::rank},
    {"state.older", older, Needs::rank},
    {"resume.bits", resume, Needs::rank},
    {"resume.swap", swap, Needs::rank},
    {"determinism.again", again, Needs::run},
    {"determinism.process", same_process, Needs::rank},
    {"threads.workers", workers, Needs::run},
    {"threads.two", two_threads, Needs::run},
    {"memory.steps", memory, Needs::rank},
    {"faults.batch", one_sample, Needs::rank},
    {"faults.diverging", diverging, Needs::run},
    {"time.hooks", slow_hooks, Needs::run},
};
static_assert(std::ranges::equal(functions, tests, {}, &Test::name, &TestRow::name));

/// A folder, removed with the object; in memory if there is room: files outlast a killed process there, too.
class Folder {
 public:
  Folder() {
    constexpr std::uintmax_t enough = 1U << 28;
    std::error_code error;
    const fs::space_info space = fs::space("/dev/shm", error);
    const bool memory = !error && space.available > enough && access("/dev/shm", W_OK) == 0;
    path_ = (memory ? fs::path("/dev/shm") : fs::temp_directory_path()) / "trainyard-check-XXXXXX";
    std::string name = path_.string();
    if (mkdtemp(name.data()) == nullptr) throw DataError("no temporary folder can be made: set TMPDIR");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const char* name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

class Check {
 public:
  Check(Subject subject, const CheckOptions& options, const Folder& folder)
      : subject_(std::move(subject)), options_(options), folder_(folder) {
    subject_.materials.registry = &subject_.registry;
  }
  Check(const Check&) = delete;
  Check& operator=(const Check&) = delete;

  Report run() {
    Report report{title(subject_.file), subject_.file.path, {}};
    for (const Test& test : functions) {
      const bool asked = wanted(test.name, options_.only);
      if (!asked && !(test.run == trains && run_wanted())) continue;
      Result result = one(test);
      if (!asked && result.verdict == Verdict::pass) continue;  // others needed it
      if (options_.format == CheckOptions::Format::text) print_line(result, std::cout);
      report.results.push_back(std::move(result));
    }
    return report;
  }

 private:
  bool run_wanted() const {
    return std::ranges::any_of(functions, [&](const Test& test) {
      return test.needs > Needs::code && wanted(test.name, options_.only);
    });
  }

  /// Returns why a test cannot be made; empty if it can.
  std::string obstacle(const Test& test) const {
    if (test.needs == Needs::nothing) return {};
    if (!opens_) return "the file does not open: see life.opens";
    if (test.needs == Needs::object) {
      const bool lacks = std::ranges::any_of(subject_.file.manifest.options, &OptionSpec::required);
      return lacks && !subject_.run ? "options that it must have could not be chosen: see run.trains" : "";
    }
    if (plugins::find_kind(subject_.file.manifest.kind)->beside)
      return "a training has no plugin of this kind";
    if (test.needs != Needs::code && !subject_.run) return "no run trains with it: see run.trains";
    if (test.needs == Needs::rank && needs_ranks(subject_.file))
      return "it needs several ranks, and this is a run of one";
    return {};
  }

  Result one(const Test& test) {
    const auto began = std::chrono::steady_clock::now();
    Outcome outcome{Verdict::skip, obstacle(test), {}};
    if (outcome.what.empty()) {
      subject_.folder = folder_ / "test";
      fs::create_directories(subject_.folder);
      outcome = apart(options_.timeout, folder_ / "said", [&] { return test.run(subject_); });
      std::error_code ignored;
      fs::remove_all(subject_.folder, ignored);
    }
    if (test.run == opens) opens_ = outcome.verdict == Verdict::pass;
    if (test.run == trains) take_run(subject_, outcome);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
    return {test.name, outcome.verdict, outcome.what, seconds.count()};
  }

  Subject subject_;
  const CheckOptions& options_;
  const Folder& folder_;
  bool opens_ = true;
};

/// Returns the registry with these plugins in place of any others of their kinds and names.
plugins::Registry with(const std::vector<plugins::PluginFile>& own, const plugins::Registry& registry) {
  std::vector<plugins::PluginFile> files = own;
  std::ranges::copy_if(registry.files(), std::back_inserter(files), [&](const plugins::PluginFile& other) {
    return std::ranges::none_of(own, [&](const auto& file) { return title(file) == title(other); });
  });
  return plugins::Registry(std::move(files));
}

/// Reports a file that is no plugin of this host: the first test fails and says why.
Report refused(const std::string& path, const std::string& why, const CheckOptions& options) {
  Report report{path, path, {{tests[0].name, Verdict::fail, why, 0.0}}};
  if (options.format == CheckOptions::Format::text) print_line(report.results.front(), std::cout);
  return report;
}

Report check_one(const plugins::PluginFile& file, const plugins::Registry& registry,
                 const CheckOptions& options) {
  const Folder folder;
  Subject subject{.file = file, .registry = registry, .seed = options.seed};
  subject.materials.files = write_samples(folder / "samples");
  subject.materials.sets = options.sets;
  Check check(std::move(subject), options, folder);
  return check.run();
}

int check_command(const std::vector<plugins::PluginFile>& plugins, const plugins::Registry& registry,
                  const CheckOptions& options) {
  const Stoppable stoppable;
  std::vector<Report> reports;
  for (const plugins::PluginFile& asked : plugins) {
    const auto add = [&](const std::string& what, const auto& report) {
      if (options.format == CheckOptions::Format::text) std::cout << what << '\n' << std::flush;
      reports.push_back(report());
      if (options.format == CheckOptions::Format::text) print_counts(reports.back(), std::cout);
    };
    std::vector<plugins::PluginFile> all;
    try {
      all = plugins::read(asked.path);
    } catch (const PluginError& error) {
      add(asked.path, [&] { return refused(asked.path, error.what(), options); });
    }
    const plugins::Registry known = with(all, registry);
    for (const plugins::PluginFile& each : all)
      if (asked.manifest.name.empty() || title(asked) == title(each))
        add(asked.path + (all.size() > 1 ? ": " + title(each) : ""),
            [&] { return check_one(each, known, options); });
  }
  if (options.format == CheckOptions::Format::json) print_json(reports, std::cout);
  if (options.format == CheckOptions::Format::junit) print_junit(reports, std::cout);
  const bool passed = std::ranges::all_of(reports, &Report::passed);
  return static_cast<int>(passed ? ExitCode::done : ExitCode::plugin);
}

}  // namespace
}  // namespace trainyard::check

extern "C" __attribute__((visibility("default"))) const trainyard::check::Checker* trainyard_checker() {
  static const trainyard::check::Checker checker = {
      .check = [](const auto& files, const auto& registry, const auto& options) {
        return trainyard::train::reported(
            [&] { return trainyard::check::check_command(files, registry, options); });
      }};
  return &checker;
}
