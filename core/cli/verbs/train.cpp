// trainyard train: trains a model. trainyard resume: continues a run.
#include <unistd.h>
#include <filesystem>

#include "core/cli/child.hpp"
#include "core/cli/engine_library.hpp"
#include "core/cli/launcher.hpp"
#include "core/cli/supervisor.hpp"
#include "core/cli/verbs/verbs.hpp"
#include "core/runfile/print.hpp"

namespace trainyard::cli {
namespace {

struct TrainArguments {
  explicit TrainArguments(const CommandLine& typed) : line(typed) {}

  const CommandLine& line;  ///< reused to start ranks and supervised runs
  RunFileOptions run_file;
  train::TrainOptions train;
  bool supervise = false;
  std::string run;  ///< the run to resume
};

/// Returns the same command for a child, without `option`, which starts children, and its `values` values.
std::vector<std::string> words_without(std::string_view option, std::size_t values, const CommandLine& line) {
  std::vector<std::string> words{std::filesystem::read_symlink("/proc/self/exe").string()};
  for (std::size_t i = 0; i < line.words.size(); ++i) {
    const std::string& word = line.words[i];
    if (word == option)
      i += values;
    else if (!word.starts_with(std::string(option) + "="))
      words.push_back(word);
  }
  return words;
}

/// Supervises a run: the first start is as given, later ones resume.
int supervised(const std::string& directory, const CommandLine& line) {
  control::Supervised run{.directory = directory};
  run.first = words_without("--supervise", 0, line);
  run.again = run.first;
  std::erase(run.again, "--overwrite");
  run.again.insert(run.again.end(), {"--set", "run.resume=auto"});
  return control::supervise(run);
}

int train(TrainArguments& given) {
  return with_run(given.run_file, [&](const RunFile& run) {
    const int ranks = given.run_file.ranks;
    if (given.supervise && ranks > 1)
      throw ConfigError(
          "--supervise is for a run of one rank; of several, leave one of --supervise and --ranks out");
    if (given.supervise) return supervised(run.config.run.output_dir, given.line);
    if (ranks > 1) return control::launch(words_without("--ranks", 1, given.line), ranks);
    control::follow_parent();
    given.train.resolved_toml = config::toml_file(run.config.resolved);
    given.train.color = isatty(STDOUT_FILENO) == 1;
    return engine().train(run.config, run.registry, given.train);
  });
}

int resume(TrainArguments& given) {
  given.run_file.files = {given.run + "/config.toml"};
  given.run_file.sets.push_back("run.output_dir=" + given.run);
  given.run_file.sets.push_back("run.resume=must");
  given.run_file.sets.push_back("run.load=all");  // whatever it began with
  given.run_file.sets.push_back("run.load_match=[]");
  return train(given);
}

}  // namespace

void add_train(Arguments verb, CommandLine& line) {
  const auto given = std::make_shared<TrainArguments>(line);
  add_run_file(verb, given->run_file);
  verb.flag("--overwrite", given->train.overwrite, "replace the run directory if it exists");
  verb.flag("-q,--quiet", given->train.quiet, "print errors only");
  verb.flag("--supervise", given->supervise,
            "start again from the last checkpoint where a plugin brings the run down, without the plugin");
  verb.flag(
      "--strict-state", [given] { given->run_file.sets.push_back("guard.strict_state=true"); },
      "find writes that hooks did not declare; slow");
  when_chosen(verb, line, given, train);
}

void add_resume(Arguments verb, CommandLine& line) {
  const auto given = std::make_shared<TrainArguments>(line);
  verb.add("run", given->run, "the run's directory or name").required().run(true).existing_folder();
  add_set(verb, given->run_file, "trainer.max_duration=20ep");
  add_plugin_folders(verb, given->run_file);
  add_ranks(verb, given->run_file);
  verb.flag("-q,--quiet", given->train.quiet, "print errors only");
  when_chosen(verb, line, given, resume);
}

}  // namespace trainyard::cli
