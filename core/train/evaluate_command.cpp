#include "core/train/evaluate_command.hpp"

#include <ATen/core/grad_mode.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include <trainyard/safetensors.hpp>

#include "core/train/run.hpp"

namespace trainyard::train {
namespace {

void load_weights(const Run& run, const std::string& path) {
  std::map<std::string, at::Tensor> wanted;
  for (const NamedTensor& each : run.weights()) wanted.emplace(each.name, each.tensor);
  const at::NoGradGuard no_grad;
  for (const NamedTensor& read : read_safetensors(path)) {
    const auto target = wanted.find(read.name);
    if (target == wanted.end())
      throw ConfigError(path + " holds \"" + read.name + "\", which the model does not have");
    if (target->second.sizes() != read.tensor.sizes() ||
        target->second.scalar_type() != read.tensor.scalar_type())
      throw ConfigError(path + ": \"" + read.name + "\" is " + read.tensor.toString() + " of " +
                        c10::str(read.tensor.sizes()) + ", the model's is " + target->second.toString() +
                        " of " + c10::str(target->second.sizes()));
    target->second.copy_(read.tensor);
    wanted.erase(target);
  }
  if (!wanted.empty())
    throw ConfigError(path + " lacks \"" + wanted.begin()->first + "\", which the model needs");
}

}  // namespace

int evaluate_command(const config::RunConfig& config, const plugins::Registry& registry,
                     const std::string& weights, bool json) {
  if (!config.val && !config.test)
    throw ConfigError("there is nothing to evaluate on: the run file has neither [data.val] nor [data.test]");
  Run run(config, registry);
  run.build_model();
  Loop& loop = run.build_loop({});
  load_weights(run, weights);
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
