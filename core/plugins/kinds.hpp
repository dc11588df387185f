// The kinds of plugins that this host runs, one row each. A row holds what the run file, the commands and a
// resume know of a kind; its interface is the SDK's header trainyard/KIND.hpp, which is not needed here.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

#include <trainyard/plugin.hpp>

namespace trainyard::plugins {

struct KindRow {
  Kind kind;
  /// The section of the run file that such a plugin fills; empty: it is a part, and stands within the options
  /// of others alone.
  std::string_view section;
  std::string_view help;  ///< description for `config schema` and messages
  enum class Place : std::uint8_t { needed, optional, list } place = Place::needed;
  std::string_view defaults = {};  ///< plugins used if the section is absent: "console jsonl"
  bool left_out = false;           ///< a run can go on without one that fails
  bool in_steps = false;           ///< durations among its options measure progress, never wall time
  bool beside = false;             ///< a training neither has such a plugin nor needs a slot for it
  bool is_verb = false;            ///< it is called as a verb: trainyard NAME
  bool has_state = true;  ///< checkpoints and swaps carry its state; sinks cut their files themselves
  /// How a resume treats another plugin (`type`), and other options.
  enum class Change : std::uint8_t {
    allowed,     ///< does not affect the training
    journalled,  ///< alters the training from here on, which the journal tells
    refused,     ///< the saved state no longer fits
  };
  Change type_change = Change::journalled, change = Change::journalled;
};

/// The rows are in config order, the last tie-breaker of hook order: where two plugins leave it open, the one
/// of the earlier row runs first. `plan` prints it. (Order of `config show`, `config schema`: schema.cpp.)
inline constexpr KindRow kinds[] = {
    {.kind = {"model", 1},
     .section = "model",
     .help = "the network",
     .type_change = KindRow::Change::refused,
     .change = KindRow::Change::refused},
    {.kind = {"transform", 1},
     .section = "transforms",
     .help = "what is made of the network before it trains, one after the other",
     .place = KindRow::Place::list,
     .has_state = false,
     .type_change = KindRow::Change::refused,
     .change = KindRow::Change::refused},
    {.kind = {"dropout", 1},
     .section = "model.dropout",
     .help = "what fills the dropout sites of the model; without it they do nothing",
     .place = KindRow::Place::optional,
     .in_steps = true},
    {.kind = {"loss", 1}, .section = "loss", .help = "what is minimised"},
    {.kind = {"metric", 1},
     .section = "metrics",
     .help = "computed at every evaluation",
     .place = KindRow::Place::list,
     .left_out = true},
    {.kind = {"dataset", 1},
     .section = "data",
     .help = "the data; options that all splits share",
     .type_change = KindRow::Change::refused},
    {.kind = {"sampler", 1},
     .section = "data.sampler",
     .help = "order of the training samples; random with shuffle = true, else sequential",
     .place = KindRow::Place::optional,
     .type_change = KindRow::Change::refused,
     .change = KindRow::Change::refused},
    {.kind = {"optimizer", 1},
     .section = "optimizer",
     .help = "how parameters are updated",
     .type_change = KindRow::Change::refused},
    {.kind = {"schedule", 1},
     .section = "schedule",
     .help = "how the learning rate moves",
     .defaults = "constant",
     .in_steps = true},
    {.kind = {"executor", 1},
     .section = "executor",
     .help = "how a step is run, from a fetched batch to updated weights",
     .defaults = "eager"},
    {.kind = {"compressor", 1},
     .section = "distributed.compressor",
     .help = "how gradients are summed over several ranks; without it as they are",
     .place = KindRow::Place::optional,
     .in_steps = true},
    {.kind = {"checkpointer", 1},
     .section = "checkpoint",
     .help = "how the state of the run reaches the disk",
     .defaults = "full",
     .in_steps = true,
     .has_state = false,
     .type_change = KindRow::Change::allowed,
     .change = KindRow::Change::allowed},
    {.kind = {"rule", 1},
     .section = "rules",
     .help = "what watches the run's tensors and metrics",
     .place = KindRow::Place::list,
     .left_out = true,
     .in_steps = true},
    {.kind = {"recorder", 1},
     .section = "recorder",
     .help = "what takes tensors out of the run, for the rules and for later",
     .place = KindRow::Place::optional,
     .defaults = "trial",
     .in_steps = true,
     .type_change = KindRow::Change::allowed,
     .change = KindRow::Change::allowed},
    {.kind = {"hook", 1},
     .section = "hooks",
     .help = "plugins that fill no slot",
     .place = KindRow::Place::list,
     .left_out = true},
    {.kind = {"sink", 1},
     .section = "logging.sinks",
     .help = "where records go",
     .place = KindRow::Place::list,
     .defaults = "console jsonl tensorboard",
     .left_out = true,
     .in_steps = true,
     .has_state = false,
     .type_change = KindRow::Change::allowed,
     .change = KindRow::Change::allowed},
    {.kind = {"tool", 1},
     .section = "tools",
     .help =
         "options of verbs that plugins are, trainyard NAME run.toml; a training has nothing to do with them",
     .place = KindRow::Place::list,
     .in_steps = true,
     .beside = true,
     .is_verb = true,
     .has_state = false,
     .type_change = KindRow::Change::allowed,
     .change = KindRow::Change::allowed},
    {.kind = {"study", 1},
     .section = "study",
     .help =
         "which runs `trainyard study` makes of this file, or of `run`; a training has nothing to do with it",
     .place = KindRow::Place::optional,
     .beside = true,
     .has_state = false,
     .type_change = KindRow::Change::allowed,
     .change = KindRow::Change::allowed},
    {.kind = {"detector", 1},
     .section = "",
     .help = "how unlike the others a row of a table is; a part of other plugins",
     .place = KindRow::Place::optional,
     .beside = true,
     .has_state = false,
     .type_change = KindRow::Change::allowed,
     .change = KindRow::Change::allowed},
    {.kind = {"codec", 1},
     .section = "",
     .help = "how a tensor's bytes are stored in fewer; a part of other plugins",
     .place = KindRow::Place::optional,
     .beside = true,
     .has_state = false,
     .type_change = KindRow::Change::allowed,
     .change = KindRow::Change::allowed},
    {.kind = {"scorer", 1},
     .section = "",
     .help = "how much the weights of a layer matter; a part of other plugins",
     .place = KindRow::Place::optional,
     .beside = true,
     .has_state = false,
     .type_change = KindRow::Change::allowed,
     .change = KindRow::Change::allowed},
};

/// A section for one plugin of a kind that is otherwise a list: features that nearly every trainer has as
/// keys keep a table of their own, and another plugin can take their place there.
struct SlotRow {
  std::string_view section, kind;
  std::string_view plugin;  ///< used where the table has no `type`
  std::string_view help;
};

inline constexpr SlotRow slots_beside_lists[] = {
    {.section = "early_stopping",
     .kind = "hook",
     .plugin = "early_stopping",
     .help = "ends a training that no longer improves"},
    {.section = "profiler",
     .kind = "hook",
     .plugin = "trace",
     .help = "looks at where the time of a training goes"},
};

/// Returns the row of a kind; null where this host does not run it.
constexpr const KindRow* find_kind(std::string_view name) {
  const auto* row = std::find_if(std::begin(kinds), std::end(kinds),
                                 [&](const KindRow& each) { return each.kind.name == name; });
  return row == std::end(kinds) ? nullptr : row;
}

/// Returns whether a run can go on without a plugin of the kind.
constexpr bool can_be_left_out(std::string_view kind) {
  const KindRow* row = find_kind(kind);
  return row != nullptr && row->left_out;
}

}  // namespace trainyard::plugins
