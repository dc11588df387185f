// What is taken at which step: the collections that are saved and the tensors that rules watch, together.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <trainyard/formats/trial_files.hpp>
#include <trainyard/rule_set.hpp>

namespace trial {

using namespace trainyard;

/// What a step of training has, where the network and the executor show it; `anything` stands for all tensors.
enum class Shown : std::uint8_t { anything, weights, gradients, losses, outputs, nodes };
constexpr unsigned bit(Shown kind) {
  return 1U << static_cast<unsigned>(kind);
}

/// Whether what somebody watches was ever there, in bits of Shown.
struct Sighting {
  std::string who;       ///< "rules.dead_relu", "the collection gradients"
  bool training = true;  ///< it is looked for in training alone, so that one record tells
  unsigned wanted = 0;   ///< by the names of the network's tensors, once it was due
  unsigned seen = 0, told = 0;

  /// What was wanted and never seen, as a sentence without its end; each kind is told once. Empty where nothing is.
  std::string tell_missing();
};

/// What is wanted of a tensor at a step.
struct Want {
  bool statistics = false;
  bool value = false;
  bool histogram = false;
  Stored stored;
  std::vector<Sighting*> by;  ///< who wants it
  bool any() const { return statistics || value; }
};

/// What those that are due at the same time want. Names are matched once.
class Plan {
 public:
  struct Source {
    const SavedCollection* collection = nullptr;  ///< else a rule's
    std::vector<Watch> watches;
    Sighting* sighting = nullptr;
  };
  Plan(std::vector<Source> sources, const std::vector<Collection>& collections)
      : sources_(std::move(sources)), trial_(collections) {}

  bool for_rules() const;
  /// A record of the step was made: what its sources wanted and did not find (Sighting::tell_missing).
  std::vector<std::string> missed() const;
  /// The loop's thread. What is returned stays until the next call.
  const Want& want(const std::string& name);

  /// Whether any tensor of a kind is wanted, as far as that is known: by the names of a graph, or once they were all looked
  /// at.
  bool nodes = true, optimizer = true;
  bool expects = false;  ///< the sightings of its sources know what they want of the network

 private:
  Want make(const std::string& name) const;
  std::vector<Source> sources_;
  Trial trial_;  ///< for its matching of names
  std::unordered_map<std::string, Want> known_;
};

class Agenda {
 public:
  /// The collections outlive it.
  Agenda(const std::vector<SavedCollection>& saved, std::vector<Collection> known)
      : saved_(saved), known_(std::move(known)) {}

  /// Other rules from now on. Throws ConfigError for a cadence that this run cannot count.
  void set_rules(const std::vector<NamedRule>& rules, const RunScale& scale);

  /// The first step of training from `step` on at which something is due.
  std::int64_t next(std::int64_t step) const;
  /// Null where nothing is due. In a mode other than train, everything is that looks at it.
  std::shared_ptr<Plan> at(Mode mode, std::int64_t step);
  /// Whether a rule watches what is sampled of the machine and of the run's phases.
  bool looks_at_machine() const;
  /// At the end of a training: what nobody found, and was not told before.
  std::vector<std::string> never_seen();

 private:
  Sighting* sighting(const std::string& who, bool training);
  const std::vector<SavedCollection>& saved_;
  std::vector<Collection> known_;
  std::vector<RuleCadence> rules_;
  std::vector<std::string> ids_;                              ///< of rules_
  std::map<std::string, Sighting> sightings_;                 ///< by who
  std::map<std::vector<bool>, std::shared_ptr<Plan>> plans_;  ///< by who is due
};

}  // namespace trial
