// Puts the record of a step together while the loop goes through it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <trainyard/context.hpp>
#include <trainyard/network.hpp>

#include "device_statistics.hpp"
#include "plan.hpp"
#include "reductions.hpp"
#include "store.hpp"

namespace trial {

using namespace trainyard;

class Capture {
 public:
  /// A tensor of a record, and what is wanted of it.
  using Tensors = std::vector<std::pair<TensorRecord, Want>>;
  /// A record for which everything is taken; what a device computes of it may be under way.
  struct Draft {
    std::shared_ptr<StepRecord> record;  ///< without its tensors; null where nothing was wanted
    Tensors tensors;
    std::unique_ptr<DeviceStatistics> late;  ///< of tensors; null where nothing is under way
    bool for_rules = false;
    std::vector<std::string> missed;  ///< as Plan::missed
  };
  struct Taken {
    std::shared_ptr<const StepRecord> record;
    Wants wants;  ///< of its tensors
    bool for_rules = false;
  };

  /// Begins a record; drops one that was begun.
  void begin(std::shared_ptr<Plan> plan, StepRecord head);
  bool active() const { return plan_ != nullptr; }
  /// What it has come to; nothing where none was begun.
  Draft finish();
  /// Waits for what is under way.
  Taken complete(Draft draft);
  /// Of the record that was begun.
  StepRecord& head() { return *record_; }
  void drop();

  void inputs(const Batch& batch);
  /// Of the network, for the first micro-batch.
  void output(const at::Tensor& output);
  /// Large ones are looked at while the passes of the step go on, until `gradients`: no plugin writes the
  /// model in between.
  void weights(StepContext& context);
  /// Once a step; `scaled`: they have the scale of fp16 on them.
  void gradients(StepContext& context, bool scaled);
  void optimizer(StepContext& context);
  /// The mean loss, where there is one.
  void loss(const at::Tensor& value);
  /// A tensor of one element.
  void scalar(const std::string& name, const at::Tensor& value);
  /// At the first step of a plan: what the network has of what its sources want.
  void expect_all(StepContext& context);
  /// Looks on at the passes of the network, until `unwatch`.
  void watch(Network& network);
  void unwatch();

  /// The network is another, or may be.
  void forget_names() { parameters_.clear(); }

  /// The thread beside the loop's, for large tensors.
  void start(Host& host) { reductions_.start(host); }
  void stop() { reductions_.stop(); }

 private:
  struct Parameter {
    std::string name, gradient;
    at::Tensor tensor;
  };
  const std::vector<Parameter>& parameters(StepContext& context);
  /// Whether it was wanted. `stays`: it does not change until `settle`.
  bool take(Shown kind, const std::string& name, const at::Tensor& tensor, bool stays = false);
  /// Notes whether anybody wants a tensor that a step of training has where the executor shows it.
  void expect(Shown kind, const std::string& name);
  /// Waits for the statistics of tensors that are about to change; a device computes in order anyway.
  void settle();
  template <class Visit>
  bool any_node_name(const Graph& graph, Visit&& visit);
  void node(const NodeActivity& activity);

  std::shared_ptr<Plan> plan_;
  std::shared_ptr<StepRecord> record_;
  bool has_gradients_ = false, has_output_ = false;
  Tensors tensors_;
  Reductions reductions_;                     ///< of tensors_
  std::unique_ptr<DeviceStatistics> device_;  ///< of tensors_
  std::unique_ptr<DeviceStatistics> spare_;
  std::vector<Parameter> parameters_;
  Network* watched_ = nullptr;
  bool node_wanted_ = false, node_seen_ = false;
  std::string name_;  ///< of a tensor of a node, while it is looked up
};

}  // namespace trial
