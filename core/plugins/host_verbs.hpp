// The verbs of the host, in the order of --help. Tools cannot have their names.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

namespace trainyard::plugins {

struct HostVerb {
  const char *name, *help;
  bool is_program = false;  ///< the program trainyard-NAME has it, and not trainyard itself
};

inline constexpr HostVerb host_verbs[] = {
    {"train", "train a model"},
    {"resume", "go on with a run from its newest checkpoint"},
    {"eval", "evaluate saved weights on the run's val and test data"},
    {"validate", "check a run file and report everything that is wrong with it"},
    {"plan", "show hook order, steps, batch arithmetic and memory before training"},
    {"config", "show, compare and explain run files", true},
    {"plugins", "list, inspect, write and check plugins", true},
    {"ckpt", "look into checkpoints and check them", true},
    {"model", "look at models"},
    {"schedule", "look at schedules", true},
    {"rules", "look at runs with rules", true},
    {"bench", "measure the host against hand-written loops", true},
    {"doctor", "check this installation"},
    {"ctl", "ask and steer a run that is going", true},
    {"monitor", "follow runs in a terminal until they end; q leaves", true},
    {"runs", "list runs: state, steps, last validation", true},
    {"report", "write runs as a page: curves, times, differences, journal", true},
    {"completion", "print what a shell completes command lines with", true},
    {"tools", "list the verbs that plugins are"},
    {"study", "run trials against each other: what is compared, or searched, says [study]", true}};

/// Returns the verb, or nullptr where the host has none of that name.
constexpr const HostVerb* find_verb(std::string_view name) {
  const auto* const found = std::ranges::find(host_verbs, name, &HostVerb::name);
  return found == std::end(host_verbs) ? nullptr : found;
}

/// Returns whether tools cannot have the name: those of verbs, and "help", which stands in front of a verb.
constexpr bool is_host_verb(std::string_view name) {
  return name == "help" || find_verb(name) != nullptr;
}

}  // namespace trainyard::plugins
