// trainyard study: runs the trials that a study asks for, and reports the results.
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "core/cli/columns.hpp"
#include "core/programs/programs.hpp"
#include "core/programs/study/results.hpp"
#include "core/programs/study/study_run.hpp"
#include "lib/words.hpp"

namespace trainyard::cli {
namespace {

struct StudyArguments {
  StudyFileOptions file;
  std::string out = "runs/studies";
  int jobs = 0;
  bool dry_run = false, quick = false;
  Format format = Format::text;
};

/// Trials to check in advance; if a study makes thousands, the rest is checked when its turn comes.
constexpr std::size_t most_checked = 500;

struct Plan {
  std::vector<StudyTrial> trials;
  std::vector<StudyStage> stages;
};

/// Checks every trial that depends on no other, with a plugin object that is asked but given no results.
Plan checked(const StudyFile& file, const StudyArguments& given) {
  StudyPlugin study(file);
  TrialConfigs configs(given.file.plugin_folders);
  study.open([&](const StudyTrial& trial) { return configs.resolved(trial).resolved; });
  Plan plan{first_trials(study, configs, most_checked), {}};
  plan.stages = study.stages();
  return plan;
}

int list(const Plan& plan) {
  std::vector<std::vector<std::string>> rows{{"stage", "trials", "from", "to"}};
  for (const StudyStage& stage : plan.stages)
    rows.push_back({stage.what, std::to_string(stage.trials),
                    stage.from ? stage.from->text() : "the beginning",
                    stage.until ? stage.until->text() : "the end of the run"});
  print_columns(rows, "", std::cout);
  std::cout << "\n" << plan.trials.size() << " trials that depend on no other:\n";
  rows.clear();
  for (const StudyTrial& trial : plan.trials)
    rows.push_back({trial.name, lib::join(changes_of(trial), "  ")});
  print_columns(rows, "  ", std::cout);
  return 0;
}

int study(StudyArguments& given) {
  given.file.json = given.format == Format::json;
  if (given.quick) given.file.sets.emplace_back("study.quick=true");
  const std::optional<StudyFile> file = read_study_file(given.file);
  if (!file) return static_cast<int>(ExitCode::config);
  const Plan plan = checked(*file, given);
  if (given.dry_run) return list(plan);

  StudyRun run(*file, given.file.plugin_folders, given.out + "/" + file->name + (given.quick ? "-quick" : ""),
               given.jobs);
  const ExitCode code = run.run();
  if (code == ExitCode::resumable) {
    std::fprintf(stderr, "study: stopped; %zu trials are done. The same command goes on from there.\n",
                 run.finished().size());
    return static_cast<int>(code);
  }
  const StudyResult result = run.result();
  const std::vector<std::string> best = write_results(result, *file, run);
  if (given.format == Format::json) {
    std::cout << results_json(result, *file, run, best) << "\n";
    return 0;
  }
  std::cout << tables_text(result.tables) << "\n";
  if (run.failed() > 0)
    std::cout << run.failed() << " of " << run.finished().size() << " trials failed; what they printed is in "
              << run.folder() << "/logs\n";
  std::cout << run.folder() << "/table.md, plot.svg, runs.csv";
  for (const std::string& path : best) std::cout << ", " << std::filesystem::path(path).filename().string();
  std::cout << "\n";
  return 0;
}

}  // namespace

void add_study(Arguments verb, CommandLine& line) {
  const auto given = std::make_shared<StudyArguments>();
  verb.add("file", given->file.file,
           "file with a table [study]; `trainyard plugins list study` says of which types")
      .required()
      .existing_file();
  verb.add("--set", given->file.sets, "change a key: --set study.seeds=3").one_at_a_time();
  verb.add("--plugins", given->file.plugin_folders, "another folder of plugins").one_at_a_time();
  verb.add("--out", given->out, "folder that holds the study's (runs/studies)");
  verb.add("--jobs", given->jobs,
           "trials at a time; by default as the cores of this machine allow, on a GPU one")
      .within(1, 4096);
  verb.flag("--dry-run", given->dry_run, "say which trials there are, each checked, and run none");
  verb.flag("--quick", given->quick,
            "a few short trials, to see that the study works, where its type has that");
  add_format(verb, given->format);
  when_chosen(verb, line, given, study);
}

}  // namespace trainyard::cli
