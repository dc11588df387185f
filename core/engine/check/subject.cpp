#include "core/engine/check/subject.hpp"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "core/engine/verbs/commands.hpp"
#include "core/runfile/load.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/resolve.hpp"
#include "lib/read_file.hpp"
#include "lib/words.hpp"

namespace trainyard::check {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string read_file(const std::string& path) {
  return lib::read_file(path).value_or("");
}

/// Takes and frees memory, so that later blocks lie elsewhere, and has all fresh and freed bytes overwritten.
void lay_out_memory(unsigned layout) {
  constexpr std::size_t blocks = 4000, largest = 1500;
  mallopt(M_PERTURB, static_cast<int>(layout));
  std::mt19937 dice(layout);
  std::vector<void*> all(blocks);
  for (void*& block : all) {
    block = std::malloc(16 + dice() % largest);
    std::memset(block, static_cast<int>(layout),
                malloc_usable_size(block));  // M_PERTURB misses small ones
  }
  std::shuffle(all.begin(), all.end(), dice);
  for (std::size_t i = 0; i < blocks / 2; ++i) std::free(all[i]);  // the rest stays
}

/// Limits the memory and the time of a process, since an option's value may ask for any amount of either.
void bound(unsigned seconds) {
  constexpr rlim_t bytes = 24ULL << 30;  // of addresses, some of which LibTorch takes
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
  alarm(seconds);
}

/// Returns the changes of the command line, then those of the test.
std::vector<std::string> all_sets(const Subject& subject, const std::vector<std::string>& own) {
  std::vector<std::string> sets = subject.materials.sets;
  sets.insert(sets.end(), own.begin(), own.end());
  return sets;
}

/// Replaces this process by the program that starts the ranks: ranks share no state of LibTorch. Returns on
/// failure only.
int train_ranks(const Subject& subject, const Training& training, const std::string& folder) {
  const std::string file = folder + ".toml";
  std::ofstream(file) << training.text;
  const std::string host = (fs::read_symlink("/proc/self/exe").parent_path() / "trainyard").string();
  std::vector<std::string> words = {host, "train", file, "-q", "--ranks", "2", "--plugins"};
  words.push_back(fs::path(subject.file.path).parent_path().string());
  for (const std::string& set : all_sets(subject, training.sets)) words.insert(words.end(), {"--set", set});
  words.insert(words.end(), {"--set", "run.output_dir=" + folder});
  execv(host.c_str(), lib::argv_of(words).data());
  return static_cast<int>(ExitCode::internal);
}

/// Returns plugin, event and step from the report of a crash, as the end of a sentence.
std::string blamed(const std::string& folder) {
  const Json report = Json::parse(read_file(folder + "/report.json"), nullptr, false);
  if (!report.is_object()) return {};
  const auto text = [&](const char* key) {
    return report[key].is_string() ? report[key].get<std::string>() : "";
  };
  std::string where;
  if (!text("plugin").empty()) where += " in code of " + text("plugin");
  if (!text("event").empty()) where += " at " + text("event");
  if (report["step"].is_number()) where += ", step " + report["step"].dump();
  return where;
}

std::string last_lines(const std::string& text) {
  constexpr std::size_t most = 600;
  std::string end = text.size() > most ? "..." + text.substr(text.size() - most) : text;
  while (!end.empty() && end.back() == '\n') end.pop_back();
  return end;
}

}  // namespace

std::int64_t Subject::steps_within(double seconds, std::int64_t most) const {
  if (step_seconds * static_cast<double>(most) <= seconds) return most;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds / step_seconds));
}

bool Trained::died_by(int signal) const {
  return WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

int Trained::code() const {
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

config::RunConfig valid(const Subject& subject, const std::string& text,
                        const std::vector<std::string>& sets) {
  const std::string file = subject.folder + "/run.toml";
  std::ofstream(file) << text;
  config::Environment environment;
  environment.data_root = subject.folder;
  if (needs_ranks(subject.file)) environment.ranks = environment.local_ranks = 2;
  config::Resolution resolution =
      config::resolve(config::load({file}, all_sets(subject, sets), environment), subject.registry);
  if (!resolution.config) throw ConfigError(resolution.findings.text());
  return std::move(*resolution.config);
}

std::string fresh_folder(const Subject& subject) {
  std::string name = subject.folder + "/run-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) throw DataError("no folder can be made in " + subject.folder);
  return name + "/run";
}

int train_here(const Subject& subject, const Training& training, const std::string& folder) {
  try {
    // Writes that were not declared have a test of their own, and are no news in the others.
    std::vector<std::string> sets = {"guard.look_for_writes=0ba"};
    sets.insert(sets.end(), training.sets.begin(), training.sets.end());
    config::RunConfig config = valid(subject, training.text, sets);
    config.run.output_dir = folder;
    train::TrainOptions options;
    options.quiet = true;
    options.kill_at = training.kill_at;
    options.resolved_toml = config::toml_file(config.resolved);
    return train::train_command(config, subject.registry, options);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}

nlohmann::json result_of(const std::string& run_folder) {
  Json result = Json::parse(read_file(run_folder + "/result.json"), nullptr, false);
  return result.is_object() ? result : Json();
}

Trained train(const Subject& subject, const Training& training) {
  Trained trained;
  trained.folder = training.folder.empty() ? fresh_folder(subject) : training.folder;
  const std::string said = trained.folder + ".said";
  std::filesystem::remove(trained.folder + "/result.json");
  trained.status = forked(said, [&] {
    if (training.seconds != 0) bound(training.seconds);
    if (needs_ranks(subject.file)) return train_ranks(subject, training, trained.folder);
    if (training.layout != 0) lay_out_memory(training.layout);
    return train_here(subject, training, trained.folder);
  });
  trained.said = read_file(said);
  trained.result = result_of(trained.folder);
  return trained;
}

std::optional<Outcome> bad_end(const Trained& trained, Allow allow) {
  if (WIFSIGNALED(trained.status))
    return Outcome{Verdict::crash, end_text(trained.status) + blamed(trained.folder) + done_last(), {}};
  const int code = trained.code();
  if (code == static_cast<int>(ExitCode::done) && trained.result.is_object()) return std::nullopt;
  if (code == static_cast<int>(ExitCode::done))
    return failed("the plugin ended the process, with exit code 0" + done_last() +
                  "; throw one of Trainyard's errors instead");
  const bool orderly =
      code >= static_cast<int>(ExitCode::config) && code <= static_cast<int>(ExitCode::numeric);
  if (allow == Allow::messages && orderly) return std::nullopt;
  const bool told = trained.result.is_object() && trained.result["error"].is_string();
  const std::string why = told ? trained.result["error"].get<std::string>() : last_lines(trained.said);
  return failed("the run ended with exit code " + std::to_string(code) + done_last() + ": " + why);
}

}  // namespace trainyard::check
