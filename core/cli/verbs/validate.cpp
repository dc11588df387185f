// trainyard validate: reports everything that is wrong with a run file.
#include <cstdio>

#include "core/cli/engine_library.hpp"
#include "core/cli/verbs/verbs.hpp"

namespace trainyard::cli {
namespace {

struct ValidateArguments {
  RunFileOptions run_file;
  Format format = Format::text;
  std::string level = "build";
};

/// Builds the run with LibTorch to check that data, network, loss and optimizer fit each other. It uses the
/// CPU, as shapes are the same on any device and there may be no GPU.
int build(const RunFile& run) {
  config::RunConfig config = run.config;
  config.run.device = "cpu";
  return engine().check(config, run.registry);
}

int validate(ValidateArguments& given) {
  given.run_file.json = given.format == Format::json;
  return with_run(given.run_file, [&](const RunFile& run) {
    if (given.level == "build")
      if (const int wrong = build(run); wrong != 0) return wrong;
    if (!given.run_file.json) std::printf("%s: valid\n", run.config.run.name.c_str());
    return 0;
  });
}

}  // namespace

void add_validate(Arguments verb, CommandLine& line) {
  const auto given = std::make_shared<ValidateArguments>();
  add_run_file(verb, given->run_file);
  add_format(verb, given->format);
  verb.add("--level", given->level,
           "build: where the file is right, data is read and the network built, too, to see that they fit; "
           "files: the file and the plugins' manifests alone, in milliseconds")
      .one_of({"files", "build"});
  when_chosen(verb, line, given, validate);
}

}  // namespace trainyard::cli
