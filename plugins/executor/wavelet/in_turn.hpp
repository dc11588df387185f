// A step is of one wave, and the waves take turns: while one is half way through its step, the other begins the
// next. The update of a step is made at the next one, or at a pause.
//
// stale1: one set of weights. A pass reads a copy of them as they were when it began - without the update of the
// step before, which is under way, so at most one update behind - and its gradients update them in turn.
// replica: each wave updates weights and optimizer state of its own; every `sync_every` steps of both they become
// their mean, as at every pause (local SGD; Stich, ICLR 2019).
//
// The bits are those of the same reads and updates made one after the other.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/state.hpp>

#include "crew.hpp"
#include "rule.hpp"

namespace wavelet {

using namespace trainyard;

class InTurn : public Rule {
 public:
  void step(StepWork& work) final;
  void settle() final;
  bool in_flight() const final;

 protected:
  explicit InTurn(Crew& crew);

  /// The wave is about to read its weights.
  virtual void read(int wave) = 0;
  /// The gradients of the wave are those of the network: has them applied.
  virtual Update update(int wave) = 0;
  /// The update of a step is done.
  virtual bool joins(int /*wave*/) { return false; }
  /// Both waves are through; the network gets what they have.
  virtual void join() {}

  Crew& crew_;

 private:
  struct Flight {
    std::vector<Batch> micros;
    StepWork work;
  };
  void begin(int wave);
  void launch(int wave, const StepWork& work);
  void land(int wave);

  std::array<std::optional<Flight>, most_waves> flights_;
  std::array<std::int64_t, most_waves> first_{}, last_{};  ///< passes of the newest step of each
  int next_ = 0;
};

class Stale final : public InTurn {
 public:
  explicit Stale(Crew& crew);
  /// Updates that a pass did not see, the most so far.
  std::int64_t most_behind() const { return most_behind_; }

 private:
  void read(int wave) override;
  Update update(int wave) override;

  std::array<std::int64_t, most_waves> version_{};  ///< updates in the weights that a wave reads
  std::int64_t most_behind_ = 0;
};

class Replicas final : public InTurn {
 public:
  Replicas(Crew& crew, std::int64_t sync_every);

 private:
  void read(int) override {}
  Update update(int wave) override;
  bool joins(int wave) override;
  void join() override;
  void exchange();

  const std::int64_t sync_every_;
  std::int64_t pairs_ = 0;           ///< steps of tock since they were joined
  std::vector<at::Tensor> weights_;  ///< of the wave that the network does not have: tock's
  State state_;                      ///< of the optimizer, the same
};

}  // namespace wavelet
