// trainyard eval: evaluates saved weights.
#include "core/cli/engine_library.hpp"
#include "core/cli/verbs/verbs.hpp"

namespace trainyard::cli {
namespace {

struct EvalArguments {
  RunFileOptions run_file;
  Format format = Format::text;
  std::string weights;
};

int eval(EvalArguments& given) {
  given.run_file.trains = false;
  return with_run(given.run_file, [&](const RunFile& run) {
    const std::string file =
        given.weights.empty() ? run.config.run.output_dir + "/model.safetensors" : given.weights;
    return engine().evaluate(run.config, run.registry, file, given.format == Format::json);
  });
}

}  // namespace

void add_eval(Arguments verb, CommandLine& line) {
  const auto given = std::make_shared<EvalArguments>();
  add_run_file(verb, given->run_file);
  add_format(verb, given->format);
  verb.add("--weights", given->weights,
           "safetensors file, checkpoint or run directory, or \"best\", the run's best checkpoint; by "
           "default the last weights of the run");
  when_chosen(verb, line, given, eval);
}

}  // namespace trainyard::cli
