#include "core/engine/verbs/commands.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/engine/train/run.hpp"
#include "core/engine/verbs/terminal.hpp"
#include "core/rundir/as_left.hpp"
#include "core/rundir/folder.hpp"

namespace trainyard::train {
int evaluate_command(const config::RunConfig& given, const plugins::Registry& registry,
                     const std::string& weights, bool json) {
  const std::string path = checkpoint::weights_path(weights, given.run.output_dir);
  const config::RunConfig config = control::as_left(path, given, registry, to_stderr);
  if (!config.val && !config.test)
    throw ConfigError("there is nothing to evaluate on: the run file has neither [data.val] nor [data.test]");
  Run run(config, registry, to_terminal(), nullptr, report::learned_beside(path));
  run.build_model();
  Loop& loop = run.build_loop({});
  run.states().load_weights(path);
  std::map<std::string, double, std::less<>> values;
  for (const EvaluationSplit& split : loop.evaluations()) values.merge(loop.evaluate(split));
  if (json) {
    std::printf("%s\n", nlohmann::json(values).dump(2).c_str());
    return 0;
  }
  for (const auto& [name, value] : values) std::printf("%-24s %.6g\n", name.c_str(), value);
  return 0;
}

}  // namespace trainyard::train
