// The stages one behind the other, and the cycles in which they work. In cycle c stage s of S has the forward pass
// of unit c - s, then the backward pass of unit c - 2 (S - 1) + s and its update, so that a unit's gradient comes
// to a stage delay(s, S) updates after its forward pass (section 2 of the paper, forward first). No stage waits
// for another within a cycle: what it takes was handed on in the one before. The pipeline is neither filled nor
// drained between batches. Where several ranks share the stages, what a rank hands to another goes at once, and the
// other has it in the channel of its stage at the end of the same cycle: between cycles nothing is under way.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include <trainyard/graph/graph.hpp>
#include <trainyard/state.hpp>

#include "channel.hpp"
#include "line.hpp"
#include "stage.hpp"

namespace pipelined {

using namespace trainyard;

/// What is behind the last stage. All but `clip` is called on the thread that feeds the pipeline.
class Judge {
 public:
  virtual ~Judge() = default;
  /// The loss that training goes by, under autograd; its gradient starts from 1.
  virtual at::Tensor loss(const Unit& unit, const at::Tensor& output) = 0;
  /// The gradients of the last stage are there.
  virtual void passed_back(const Unit& unit) = 0;
  /// Of one stage. Any thread.
  virtual void clip(Tensors& gradients) = 0;
};

class Pipeline {
 public:
  /// Makes stages of a graph on the weights. `workers` threads share them, the caller's being the one with the
  /// loss; the outcome does not depend on their number, to the bit. The judge outlives the pipeline.
  Pipeline(const Graph& graph, std::span<const int> stage_of_node, const Weights& weights,
           const Method& method, int workers, Judge& judge);
  /// The same with the stages on the ranks of a line, one thread each, to the same bits. All are fed the same units;
  /// the last one has the loss. Of the weights a rank updates those of its stages. The line outlives the pipeline.
  /// Throws ConfigError where there are fewer stages than ranks.
  Pipeline(const Graph& graph, std::span<const int> stage_of_node, const Weights& weights,
           const Method& method, Line& line, Judge& judge);
  ~Pipeline();

  /// A cycle for each of the units, which go in one by one. What a stage throws comes out, and the pipeline is of
  /// no more use.
  void feed(std::vector<UnitHandle> units);
  /// Cycles until nothing is in flight: 2 (S - 1) of them.
  void drain();
  /// Cycles in all.
  std::int64_t cycles() const { return cycles_; }

  std::int64_t size() const { return static_cast<std::int64_t>(stages_.size()); }
  /// Of this rank.
  const Stage& stage(std::int64_t number) const { return *stages_[static_cast<std::size_t>(number)]; }
  /// Of any rank: the names of its parameters and buffers, the updates that it has made, and its place in the line.
  const std::vector<std::string>& names(std::int64_t stage) const {
    return names_[static_cast<std::size_t>(stage)];
  }
  std::int64_t updates(std::int64_t stage) const { return drained_ + backwards(stage); }
  int place(std::int64_t stage) const { return worker_of_stage_[static_cast<std::size_t>(stage)]; }

  /// What is in flight, with the weights that Method::keeps_weights has kept, and what else the stages know; of
  /// several ranks that of their own stages, under names that are apart.
  void save(StateWriter& state) const;
  /// Into a new pipeline, from what was saved of all stages. Throws ConfigError where what is in flight is of another
  /// number of stages.
  void load(const StateReader& state);

 private:
  struct Worker {
    std::int64_t first, last;  ///< its stages: [first, last)
    std::jthread thread;
  };
  /// What a stage takes of a cycle, in seconds: the least that was seen, which is without what else the machine did.
  struct Cost {
    double forward = std::numeric_limits<double>::max(), backward = forward;
  };
  Pipeline(const Graph& graph, std::span<const int> stage_of_node, const Weights& weights,
           const Method& method, int workers, Line* line, Judge& judge);
  void make_workers();
  void run(std::int64_t from, std::int64_t to, std::vector<UnitHandle> units);
  void balance();
  bool is_own(std::int64_t stage) const { return stages_[static_cast<std::size_t>(stage)] != nullptr; }
  const UnitHandle& unit(std::int64_t number) const {
    return units_[units_.size() - static_cast<std::size_t>(fed_ - number)];
  }
  /// Whether a pass of a stage is part of a cycle: the unit that it has then went in.
  bool is_fed(std::int64_t unit) const { return unit >= 0 && unit < fed_; }
  std::int64_t forward_unit(std::int64_t cycle, std::int64_t stage) const { return cycle - stage; }
  std::int64_t backward_unit(std::int64_t cycle, std::int64_t stage) const {
    return cycle - 2 * (size() - 1) + stage;
  }
  void take_from_others(std::int64_t cycle);
  void cycle(std::int64_t number, std::int64_t first, std::int64_t last);
  void run_forward(std::int64_t stage);
  void run_backward(std::int64_t stage);
  void serve(const Worker& worker, const std::stop_token& stop);
  void fail();

  // Of the units that went in, each in its cycle, the first so many have had a pass of a stage; between cycles.
  std::int64_t forwards(std::int64_t stage) const { return std::max<std::int64_t>(fed_ - stage, 0); }
  std::int64_t backwards(std::int64_t stage) const {
    return std::max<std::int64_t>(fed_ - 2 * (size() - 1) + stage, 0);
  }

  Judge& judge_;
  Line* line_;                                        ///< null: all stages are here
  std::vector<std::unique_ptr<Stage>> stages_;        ///< null where another rank has it
  std::vector<std::vector<std::string>> names_;       ///< by stage
  std::vector<int> worker_of_stage_;                  ///< or its place in the line
  std::vector<Channel<Message>> forward_, backward_;  ///< to each stage
  std::deque<UnitHandle> units_;                      ///< in flight, oldest first
  std::int64_t fed_ = 0;                              ///< units, since it was last empty
  std::int64_t drained_ = 0;                          ///< and before
  std::int64_t cycles_ = 0;

  // The caller hands out cycles and waits until all workers have done them.
  std::vector<Worker> workers_;  ///< the last is the caller's
  bool measures_;                ///< what stages cost is not known yet; changes between rounds
  std::vector<Cost> costs_;      ///< of each stage, written by its worker
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::int64_t from_ = 0, to_ = 0;
  std::atomic<std::int64_t> round_ = 0;
  std::atomic<std::int64_t> busy_ = 0;
  std::exception_ptr failed_;
};

}  // namespace pipelined
