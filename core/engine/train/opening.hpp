// How plugins are opened, each kind in its way: when a run begins, and when a swap brings others.
#pragma once

#include <optional>
#include <string>

#include "core/engine/train/live.hpp"

namespace trainyard::train {

class Opening {
 public:
  /// When a run that begins opens a kind. A swap opens all that it brings at once.
  enum class Stage : std::uint8_t { data, model, loop };

  /// Opens plugins of `layer`: the run's own, or that of a swap, with which the run is as `config` says. All
  /// of them outlive the object.
  Opening(Live& run, const config::RunConfig& config, Layer& layer)
      : run_(run), config_(config), layer_(layer) {}

  /// In config order.
  void open(Stage stage);
  /// All that a plugin does before the first step. What it makes goes into the layer.
  void open(ActivePlugin& plugin);
  /// "train", "val", "test", once their plugins are open. Throws Error.
  /// `whole`: with all of each batch, whatever the other ranks have.
  Split split(const std::string& name, bool whole = false);
  /// Throws ConfigError where the schedule asks for what the optimizer does not have.
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
  void model(ActivePlugin& plugin);
  void dropout(ActivePlugin& plugin);
  void loss(ActivePlugin& plugin);
  void metric(ActivePlugin& plugin);
  void optimizer(ActivePlugin& plugin);
  void schedule(ActivePlugin& plugin);
  void recorder(ActivePlugin& plugin);
  void compressor(ActivePlugin& plugin);
  /// The part of a dataset that the file gives the split, without what cannot be graded; none: all of it.
  std::optional<View> view_of(const std::string& split, const Dataset& dataset) const;
  void check_schema(const std::string& name, const BatchSchema& schema) const;

  Live& run_;
  const config::RunConfig& config_;
  Layer& layer_;
};

/// Has a network, just built, compute on the run's device and in its precision. Throws ConfigError where it cannot.
void place(Network& network, const Live& run);

/// Draws the curve of a schedule from where it begins in the run. `step`: where the run stands.
void place_curve(Made& made, ActivePlugin& schedule, RunScale scale, CurvePlace place, std::int64_t step = 0);

}  // namespace trainyard::train
