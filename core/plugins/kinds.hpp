// The kinds of plugins that this host runs: one row each. What the run file, the commands and a resume know of
// a kind stands here; its interface is the SDK's header trainyard/KIND.hpp, which is not needed here.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

#include <trainyard/plugin.hpp>

namespace trainyard::plugins {

struct KindRow {
  Kind kind;
  std::string_view section;  ///< of the run file that such a plugin fills
  std::string_view help;     ///< what it is, for `config schema` and messages
  enum class Place : std::uint8_t { needed, optional, list } place = Place::needed;
  std::string_view defaults = {};  ///< the plugins where the file has no such section: "console jsonl"
  bool left_out = false;           ///< a run can do without one that fails
  bool in_steps = false;           ///< durations among its options are places in the run, never wall time
  bool beside = false;             ///< a training has no such plugin, and needs no slot for it
  bool is_verb = false;            ///< trainyard NAME
  bool has_state = true;           ///< that checkpoints and swaps carry; sinks cut their files themselves
  /// What a resume makes of another plugin (`type`), and of other options.
  enum class Change : std::uint8_t {
    allowed,     ///< changes nothing of the training
    journalled,  ///< the training is another one from here on, which the journal tells
    refused,     ///< the state does not fit any more
  };
  Change type_change = Change::journalled, change = Change::journalled;
};

/// In config order, the order of last resort of hooks: where two plugins leave it open, the one of the
/// earlier row comes first. `plan` prints it. (The order of `config show` and `config schema`: schema.cpp.)
inline constexpr KindRow kinds[] = {
    {.kind = {"model", 1},
     .section = "model",
     .help = "the network",
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
};

/// A section for one plugin of a kind that is a list otherwise: what nearly every trainer has as keys of its
/// own keeps a table of its own, and one that does it in another way can stand there.
struct SlotRow {
  std::string_view section, kind;
  std::string_view plugin;  ///< where the table has no `type`
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

/// The row of a kind; null where this host does not run it.
constexpr const KindRow* find_kind(std::string_view name) {
  const auto* row = std::find_if(std::begin(kinds), std::end(kinds),
                                 [&](const KindRow& each) { return each.kind.name == name; });
  return row == std::end(kinds) ? nullptr : row;
}

/// Whether a run can do without a plugin of the kind.
constexpr bool can_be_left_out(std::string_view kind) {
  const KindRow* row = find_kind(kind);
  return row != nullptr && row->left_out;
}

}  // namespace trainyard::plugins
