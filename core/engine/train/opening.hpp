// Opens plugins, each kind in its way: when a run begins, and when a swap brings others.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/engine/train/live.hpp"

namespace trainyard::train {

class Opening {
 public:
  /// When a run that begins opens a kind. A swap opens all that it brings at once.
  enum class Stage : std::uint8_t { data, model, loop };

  /// Opens plugins of `layer`: the run's own, or that of a swap, with which the run is as `config` says. All
  /// arguments outlive the object.
  Opening(Live& run, const config::RunConfig& config, Layer& layer)
      : run_(run), config_(config), layer_(layer) {}

  /// Opens the plugins of a stage, in config order.
  void open(Stage stage);
  /// Does all that a plugin does before the first step. What it makes goes into the layer.
  void open(ActivePlugin& plugin);
  /// Opens the dataset of a split. Returns the samples that `take` gives the split.
  std::vector<std::int64_t> taken(const std::string& split);
  /// Makes "train", "val" or "test", once their plugins are open. Throws Error. If `whole`, each batch is
  /// whole, even on one of several ranks.
  Split split(const std::string& name, bool whole = false);
  /// Throws ConfigError if the schedule changes a momentum that the optimizer does not have.
  void check_momentum();

 private:
  struct Row {
    Kind kind;
    Stage stage;
    void (Opening::*open)(ActivePlugin&);
  };
  static const Row rows[];
  static const Row* row_of(const ActivePlugin& plugin);

  void dataset(ActivePlugin& plugin);
  void sampler(ActivePlugin& plugin);
  void network(ActivePlugin&);
  void dropout(ActivePlugin& plugin);
  void loss(ActivePlugin& plugin);
  void metric(ActivePlugin& plugin);
  void optimizer(ActivePlugin& plugin);
  void schedule(ActivePlugin& plugin);
  void recorder(ActivePlugin& plugin);
  void compressor(ActivePlugin& plugin);
  /// Returns the part of a dataset that `take` gives, without samples that cannot be graded; none: all of it.
  std::optional<View> view_of(const std::string& split, const Dataset& dataset) const;
  void check_schema(const std::string& name, const BatchSchema& schema) const;

  Live& run_;
  const config::RunConfig& config_;
  Layer& layer_;
};

/// Builds a network of the model of `layer`, with the run as `config` says, and applies its transforms.
/// It is on the run's device and of its precision. Throws ConfigError where that cannot be.
std::unique_ptr<Network> build_network(const Live& run, const config::RunConfig& config, Layer& layer,
                                       std::uint64_t seed);

/// Makes a schedule's curve, from where it begins in the run. `step` is the run's current step.
void place_curve(Opened& to, ActivePlugin& schedule, RunScale scale, CurvePlace place, std::int64_t step = 0);

}  // namespace trainyard::train
