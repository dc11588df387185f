// Parses the features that plugins need of a run and provide to it (Manifest::needs, provides).
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace trainyard::plugins {

/// A condition "KEY = WORD | WORD", or with != in place of =.
struct Comparison {
  std::string_view key;
  bool equal = true;
  std::vector<std::string_view> words;
};

/// A need, or a provided feature. It refers to the text that it was parsed from.
struct Feature {
  std::string_view text;               ///< the text without its conditions
  bool wish = false;                   ///< "prefers ...": without it, the plugin works with limitations
  bool absent = false;                 ///< "no NAME"
  std::string_view name;               ///< of the feature or slot; empty if `key` is set
  std::optional<Comparison> key;       ///< a key of the run file
  std::vector<Comparison> conditions;  ///< all must hold, on options or dotted run file keys
};

/// Parses a feature; nothing where the text is none.
std::optional<Feature> parse_feature(std::string_view text);

/// A feature that plugins of one kind can provide to others.
struct Provided {
  std::string_view name, kind;
  std::string_view what;  ///< for messages: "needs a model with WHAT"
};
inline constexpr Provided provided_features[] = {
    {"graph", "model", "a graph"},
    {"batch_norm", "model", "normalisation over the batch"},
    {"tied_weights", "model", "weights that several layers share"},
    {"grows", "model", "an ensemble that grows"},
    {"sharded_rows", "model", "tables whose rows lie on different ranks"},
    {"summed_weights", "transform", "weights that are sums of matrices"},
    {"free_rows", "dataset", "inputs without one row a sample"},
    {"momentum", "optimizer", "momentum of its own"},
    {"lazy_rows", "optimizer", "rows whose updates wait until they are read"},
    {"sparse_rows", "optimizer", "updates of the rows that sparse gradients have"},
    {"taps", "executor", "outputs of single nodes"},
    {"losses", "executor", "losses that hooks can read"},
    {"predictions", "executor", "outputs that hooks can read in their step"},
    {"members", "executor", "an array of models"},
    {"grads", "executor", "gradients that hooks can read and write"},
    {"hyper", "executor", "learning rates that hooks can set"},
    {"batch", "executor", "batches that hooks can change"},
    {"outputs", "executor", "outputs that hooks can change"},
    {"model", "executor", "weights that hooks can change inside a step"},
    {"divides_network", "executor", "parts of the network on different ranks"},
};
const Provided* find_provided(std::string_view name);

/// Features that the run itself provides.
inline constexpr std::string_view run_features[] = {"cuda", "distributed", "one rank",
                                                    "fp32", "rows",        "steps"};

/// Returns what is wrong with the text of a need, or of a provided feature; empty where it is right.
std::string_view wrong_need(std::string_view text);
std::string_view wrong_provided(std::string_view text, std::string_view kind);

}  // namespace trainyard::plugins
