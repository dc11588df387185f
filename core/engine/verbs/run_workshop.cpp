#include "core/engine/verbs/run_workshop.hpp"

#include <filesystem>
#include <numeric>
#include <utility>

#include "core/engine/train/state_copy.hpp"
#include "core/engine/train/weights.hpp"
#include "core/engine/verbs/signal_scope.hpp"
#include "core/engine/verbs/terminal.hpp"
#include "core/rundir/folder.hpp"

namespace trainyard::train {
namespace {

constexpr const char* initial = "initial";  ///< names the weights that the model begins with

/// Returns a digest by owner of what must be as it was; not of "run", which holds seconds.
std::map<std::string, std::string> digests_of(const std::vector<State>& states) {
  std::map<std::string, std::string> digests;
  for (const State& state : states)
    if (state.owner != "run") digests.emplace(state.owner, digest(state));
  return digests;
}

}  // namespace

std::string RunWorkshop::path_of(const std::string& weights, const config::RunConfig& config) {
  const std::string& home = config.run.output_dir;
  return weights == initial ? weights : checkpoint::weights_path(weights.empty() ? home : weights, home);
}

RunWorkshop::RunWorkshop(Run& run, const std::string& tool, const std::string& path)
    : run_(run), tool_(tool) {
  run_.build_model();
  LoopParts parts;
  parts.host = this;
  parts.signal = &SignalScope::caught();
  run_.build_loop(std::move(parts));
  load_weights(path);
}

void RunWorkshop::load_weights(const std::string& path) {
  source_ = path;
  if (path == initial) return;
  if (!std::filesystem::exists(path))
    throw DataError(path +
                    ": there are no weights: train first (trainyard train), or name some with --weights");
  if (!std::filesystem::is_directory(path)) {
    run_.states().load_weights(path);
    // The run's newest checkpoint holds the state of its plugins.
    const auto kept = checkpoint::list(std::filesystem::path(path).parent_path() / "checkpoints");
    if (!kept.empty()) loaded_ = checkpoint::load(kept.back());
    return;
  }
  loaded_ = checkpoint::load(checkpoint::find(path).back());
  source_ = loaded_->path;
  const State* const model = loaded_->find("model");
  if (model == nullptr) throw DataError(source_ + ": holds no weights of a model");
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : model->tensors) tensors.push_back({name, tensor});
  copy_weights(run_.states().weights(), tensors, source_);
}

const State* RunWorkshop::state(std::string_view owner) const {
  return loaded_ ? loaded_->find(owner) : nullptr;
}

std::vector<std::string> RunWorkshop::owners() const {
  std::vector<std::string> owners;
  if (loaded_)
    for (const State& state : loaded_->states) owners.push_back(state.owner);
  return owners;
}

std::vector<std::string> RunWorkshop::splits() const {
  std::vector<std::string> names;
  for (const EvaluationSplit& split : run_.loop().evaluations()) names.push_back(split.name);
  return names;
}

std::map<std::string, double> RunWorkshop::evaluate(std::string_view name) {
  for (const EvaluationSplit& split : run_.loop().evaluations())
    if (split.name == name) {
      const MetricValues values = run_.loop().evaluate_silently(split);
      return {values.begin(), values.end()};
    }
  throw ConfigError("asks for metrics of [data." + std::string(name) + "], which the run does not have");
}

Dataset& RunWorkshop::dataset(std::string_view split) {
  if (run_.config().split(std::string(split)) == nullptr)
    throw ConfigError("asks for [data." + std::string(split) + "], which the run does not have");
  return run_.live().layer.plugin("data." + std::string(split)).as<Dataset>();
}

std::vector<std::int64_t> RunWorkshop::samples(std::string_view split) {
  const Dataset& all = dataset(split);
  const std::optional<View>& view = run_.live().layer.made.splits.at(std::string(split)).view;
  if (view) return view->samples();
  std::vector<std::int64_t> samples(static_cast<std::size_t>(all.size()));
  std::iota(samples.begin(), samples.end(), 0);
  return samples;
}

void RunWorkshop::train(std::int64_t steps, const std::function<void()>& look) {
  const std::int64_t budget = run_.scale().total_steps;
  if (steps < 1 || (budget > 0 && steps > budget))
    throw ConfigError("asks for " + std::to_string(steps) +
                      " steps of training, and trainer.max_duration has " + std::to_string(budget) +
                      ": ask for at least one, and no more than these");
  const auto before = digests_of(run_.states().snapshot().states);
  excursion_ = {.steps = steps, .look = &look};
  run_.loop().fit([this] { excursion_.before = StateCopy(run_.states().snapshot().states).states(); });
  const bool done = std::exchange(excursion_, {}).done;
  SignalScope::withdraw();
  if (stopping()) return;
  if (!done)
    throw PluginError("a plugin of the run ended its training before " + std::to_string(steps) + " steps");
  for (const auto& [owner, digest] : digests_of(run_.states().snapshot().states)) {
    const auto was = before.find(owner);
    if (was == before.end() || was->second != digest)
      throw PluginError("the state of " + owner +
                        " is not as it was before the training that was to be undone");
  }
}

/// Ends an excursion as a signal ends a training: no evaluation follows.
void RunWorkshop::at_safe_point() {
  if (excursion_.look == nullptr || excursion_.done || stopping()) return;
  if (run_.clock().step < excursion_.steps) return;
  (*excursion_.look)();
  run_.states().go_back(excursion_.before);
  excursion_.done = true;
  SignalScope::ask();
}

const std::string& RunWorkshop::folder() {
  if (!folder_.empty()) return folder_;
  const std::string path = run_.config().run.output_dir + "/tools/" + tool_;
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw DataError(path + ": cannot be made: " + error.message());
  return folder_ = path;
}

void RunWorkshop::progress(std::int64_t done, std::int64_t total) {
  show_progress(tool_, done, total);
}

bool RunWorkshop::stopping() const {
  return SignalScope::caught() > 0;
}

}  // namespace trainyard::train
