// A network in segments that a crew runs, forward and backward, to the bits of the network as one thread runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/forward_context.hpp>
#include <trainyard/graph/network.hpp>

#include "crew.hpp"
#include "segments.hpp"

namespace partitioned {

/// What a pass whose segments are single nodes tells of each node.
struct Traced {
  std::vector<std::vector<std::uint32_t>>
      reads;                  ///< how often its operators read an input: a term of a gradient for each
  std::vector<bool> through;  ///< its output is an input of it, and no operator
};

/// The sum of a gradient is that of autograd's engine, which runs operators backward in the reverse order of their forward: terms
/// come from the last reader to the first, one by one. Where a segment reads a value several times, and others behind it do,
/// too, its own terms are added to the sum of those, which autograd is given as a term ahead of them. A node that gives out what came in,
/// such as a dropout at a rate of 0, is no reader: who reads its output reads its input.
class Plan : public std::enable_shared_from_this<Plan> {
 public:
  struct Setup {
    std::vector<Segment> segments;
    std::vector<bool> apart;  ///< nodes that the network runs, which has the dropout of the run
    const StepGraph* step;    ///< for ranks, and who reads what
    double latency;           ///< that ranks reckon with
    /// Absent: each may read anything several times, and segments are single nodes.
    std::optional<Traced> traced;
  };
  /// It borrows network and crew, and their tensors as they are: see fits().
  Plan(trainyard::GraphNetwork& network, Crew& crew, Setup setup);
  ~Plan();

  /// Returns whether weights and buffers still lie where they did, and the network has a dropout as it had.
  bool fits() const;

  /// A pass of training, under autograd; the crew's workers are to have nothing else to do until it returns. Passes may be under
  /// way at once.
  at::Tensor forward(const trainyard::Batch& batch, const trainyard::ForwardContext& context);

  /// From the next pass on, takes the time of each segment, forward and backward; the least of all passes. Only where all of
  /// them are in cluster 0.
  void measure();
  const std::vector<double>& forward_times() const { return forward_times_; }    ///< microseconds, by segment
  const std::vector<double>& backward_times() const { return backward_times_; }  ///< infinite: there was none
  double loss_time() const { return loss_time_; }                                ///< from forward to backward
  /// Returns what the last pass that was measured told.
  const Traced& traced() const { return counted_; }

 private:
  struct Slot;
  struct Part;
  struct Pass;
  struct Way;
  class Tracked;
  /// Which slot of a part, from 1, an output of it is; 0: an operator made it. By part, by output.
  using Throughs = std::vector<std::vector<std::uint32_t>>;

  void make_parts(const Setup& setup);
  void make_part(const Setup& setup, const Segment& segment);
  void run_forward(Pass& pass, std::size_t part);
  const Way& way_back(const Throughs& throughs);
  void find_roots(Way& way, const Throughs& throughs) const;
  void order_terms(Way& way, const Throughs& throughs) const;
  std::optional<std::pair<std::size_t, std::size_t>> reader_of(const Part& part, std::size_t slot) const;
  bool reads_once(std::size_t node, std::size_t input) const;
  void make_schedule(Way& way) const;
  void run_backward(Pass& pass, std::size_t part);
  std::vector<at::Tensor> backward(Pass& pass, const at::Tensor& gradient);
  at::Tensor sum(const Pass& pass, trainyard::ValueId value, std::size_t terms) const;
  void learn(const Pass& pass, std::size_t part);

  trainyard::GraphNetwork& network_;
  const trainyard::Graph& graph_;
  Crew& crew_;
  bool has_dropout_;
  std::vector<std::pair<at::Tensor, const void*>> tensors_;  ///< of the network, and where each lay
  std::vector<at::Tensor> parameters_;
  std::vector<trainyard::ValueId> parameter_values_;
  std::vector<Part> parts_;
  std::vector<std::size_t> maker_;  ///< part that makes a value for others; their number: none
  std::vector<std::pair<std::size_t, std::size_t>> ordered_;  ///< parts
  std::vector<std::uint16_t> backward_workers_;
  std::vector<double> backward_ranks_;
  std::optional<Traced> traced_;
  std::unique_ptr<Schedule> forward_;
  std::map<Throughs, std::unique_ptr<Way>> ways_;
  bool measures_ = false;
  std::vector<double> forward_times_, backward_times_;
  double loss_time_ = 0.0;
  Traced counted_;
};

}  // namespace partitioned
