// Waves through the stages of a network that lie on several ranks (card of Wavelet, section 2.3): the one is backward in a
// stage that another does not need for its forward. All ranks read the same batches, and make all updates.
//
// Round: the micro-batches of a step, each cut into as many waves, read the same weights; one update follows the last. That is what
// one batch gives.
// Rolling: a step is a wave, and nobody waits for its end before the next one begins. A wave reads, forward and backward, a copy
// of the weights as they are when it begins; updates are made in the order of the steps, that of a step when so many later ones
// are on their way as there are waves, so that the copy lacks `waves` - 1 of them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <trainyard/executor.hpp>
#include <trainyard/host.hpp>

#include "exchange.hpp"
#include "part.hpp"
#include "rule.hpp"
#include "stage.hpp"

namespace wavelet {

using namespace trainyard;

struct StagedOptions {
  std::int64_t waves = 2;
  int threads = 1;  ///< for the work within an operator
};

/// What both have.
class Staged : public Rule {
 protected:
  using Passes = std::vector<std::shared_ptr<Pass>>;

  Staged(Host& host, Ranks& ranks, Workbench& bench);

  /// One of each of so many parts of a micro-batch that counts.
  Passes passes_of(const StepWork& work, std::int64_t parts, Part& part) const;
  void report(const Passes& passes);
  /// Has the stage finish its passes up to `end`, and gives the network the gradients in a part, and the statistics behind
  /// the last of these passes, unless it has those of later ones: of a step that was repeated while others were in flight.
  void exchange(Stage& stage, std::int64_t end, Part& part, const Passes& passes);
  const Graph& own() const { return parts_[static_cast<std::size_t>(ranks_.rank())]; }

  Host& host_;
  Ranks& ranks_;
  Workbench& bench_;

 private:
  std::vector<Graph> parts_;  ///< of the network, by rank
  StageExchange exchange_;
  std::int64_t newest_ = 0;  ///< end of the passes whose statistics the network has
};

class Round final : public Staged {
 public:
  Round(Host& host, Ranks& ranks, Workbench& bench, const StagedOptions& options);
  void step(StepWork& work) override;

 private:
  const std::int64_t waves_;
  Part part_;
  Stage stage_;
};

class Rolling final : public Staged {
 public:
  Rolling(Host& host, Ranks& ranks, Workbench& bench, const StagedOptions& options);
  void step(StepWork& work) override;
  void settle() override;
  bool in_flight() const override { return !flights_.empty(); }
  /// Updates that a wave did not see, the most so far.
  std::int64_t most_behind() const { return most_behind_; }

 private:
  struct Flight {
    std::vector<Batch> micros;
    StepWork work;
    Part* part = nullptr;
    std::int64_t version = 0;  ///< updates in the weights that it reads
    Passes passes;
    std::int64_t end = 0;  ///< of the stage's passes, behind its own
  };
  void take_statistics();
  void launch(Flight& flight);
  void land();

  const std::size_t waves_;
  Graph graph_;  ///< with running statistics that waves in flight write, not those of the network
  std::vector<std::unique_ptr<Part>> parts_;  ///< one of each wave
  std::deque<Flight> flights_;
  std::int64_t begun_ = 0, most_behind_ = 0;
  Stage stage_;
};

}  // namespace wavelet
