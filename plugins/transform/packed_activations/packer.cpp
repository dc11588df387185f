#include "packer.hpp"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "saved.hpp"

namespace packed_activations {

using trainyard::Graph, trainyard::NamedTensor;

bool keeps_activations(std::string_view op) {
  static constexpr std::string_view known[] = {"AveragePool",
                                               "BatchNormalization",
                                               "Conv",
                                               "ConvTranspose",
                                               "Gelu",
                                               "Gemm",
                                               "GroupNormalization",
                                               "HardSwish",
                                               "InstanceNormalization",
                                               "LayerNormalization",
                                               "LeakyRelu",
                                               "MatMul",
                                               "MaxPool",
                                               "Relu",
                                               "Sigmoid",
                                               "Tanh"};
  return std::ranges::find(known, op) != std::end(known);
}

at::Tensor Activation::values() {
  const std::scoped_lock lock(mutex_);
  if (!values_.defined()) values_ = tensor_.values();
  at::Tensor values = values_;
  if (++asked_ % readers_ == 0) values_.reset();
  return values;
}

/// Stands in the place of one saved tensor.
class Packer::Hooks final : public torch::autograd::SavedVariableHooks {
 public:
  Hooks(Packer& packer, bool by_sign) : packer_(packer), by_sign_(by_sign) {}

  /// Is called while the hooks are registered, and so while the packer sees a node.
  void call_pack_hook(const at::Tensor& tensor) override {
    const at::Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
    sizes_ = dense.sizes().vec();
    strides_ = dense.strides().vec();
    activation_ = packer_.activation_of(dense, by_sign_);
    activation_->add_reader();
  }

  at::Tensor call_unpack_hook() override {
    const at::NoGradGuard untracked;
    return activation_->values().as_strided(sizes_, strides_);
  }

 private:
  Packer& packer_;  ///< used by call_pack_hook alone: the graph may outlive it
  const bool by_sign_;
  std::vector<std::int64_t> sizes_, strides_;
  std::shared_ptr<Activation> activation_;
};

Packer::Packer(const Network& network, std::set<std::string, std::less<>> nodes, const Quantiser& quantiser,
               std::shared_ptr<const Codec> codec)
    : network_(network), nodes_(std::move(nodes)), quantiser_(quantiser), codec_(std::move(codec)) {
  const Graph& graph = *network.graph();
  first_ = graph.nodes.front().name;
  for (const trainyard::Node& node : graph.nodes) {
    std::size_t given = 0;
    for (const trainyard::ValueId id : node.inputs) {
      if (id == trainyard::no_value) continue;
      if (std::ranges::find(graph.inputs, id) != graph.inputs.end()) from_batch_[node.name].push_back(given);
      ++given;
    }
  }
}

void Packer::watch(Network& network, const void* owner) {
  network.add_tap(owner, [self = shared_from_this()](const NodeActivity& activity) { self->see(activity); });
}

void Packer::see(const NodeActivity& activity) {
  if (!at::GradMode::is_enabled()) return;
  if (activity.node == first_) begin_pass();
  note_inputs(activity);
  if (!nodes_.contains(activity.node)) return;
  node_ = activity.node;
  const std::vector<Saved> saved = saved_by_node(activity.inputs, activity.outputs);
  for (const Saved& each : saved) {
    const std::optional<at::Tensor> tensor = each.variable->get_raw_data();
    if (!tensor || stays(*tensor)) continue;
    each.variable->register_hooks(std::make_unique<Hooks>(*this, each.by_sign));
  }
  const auto& function = activity.outputs.front().grad_fn();
  if (!saved.empty() || function == nullptr || !told_.insert(node_).second) return;
  unpacked_.push_back(node_ + " (" + function->name() + ")");
}

void Packer::begin_pass() {
  entries_.clear();
  others_.clear();
  for (const NamedTensor& each : network_.parameters())
    others_.insert(each.tensor.storage().unsafeGetStorageImpl());
  for (const NamedTensor& each : network_.buffers())
    others_.insert(each.tensor.storage().unsafeGetStorageImpl());
}

/// Notes the network's inputs: the batch keeps them, packed or not.
void Packer::note_inputs(const NodeActivity& activity) {
  const auto found = from_batch_.find(activity.node);
  if (found == from_batch_.end()) return;
  for (const std::size_t input : found->second)
    if (activity.inputs[input].has_storage())
      others_.insert(activity.inputs[input].storage().unsafeGetStorageImpl());
}

bool Packer::stays(const at::Tensor& tensor) const {
  return !tensor.defined() || !tensor.has_storage() || !tensor.is_floating_point() ||
         tensor.scalar_type() == at::kDouble || tensor.numel() == 0 ||
         others_.contains(tensor.storage().unsafeGetStorageImpl());
}

/// Returns the packed values of a dense tensor, which may have been packed for another reader, perhaps as a view of other
/// sizes.
std::shared_ptr<Activation> Packer::activation_of(const at::Tensor& values, bool by_sign) {
  const c10::StorageImpl* const storage = values.storage().unsafeGetStorageImpl();
  for (const Entry& each : entries_)
    if (each.storage._unsafe_get_target() == storage && each.offset == values.storage_offset() &&
        each.count == values.numel() && each.dtype == values.scalar_type() && (each.by_sign || !by_sign))
      if (std::shared_ptr<Activation> known = each.activation.lock()) return known;
  const at::NoGradGuard untracked;
  const auto made = std::make_shared<Activation>(values.detach().as_strided({values.numel()}, {1}),
                                                 quantiser_, by_sign, codec_);
  entries_.push_back({.storage = values.storage().getWeakStorageImpl(),
                      .offset = values.storage_offset(),
                      .count = values.numel(),
                      .dtype = values.scalar_type(),
                      .by_sign = by_sign,
                      .node = node_,
                      .activation = made,
                      .whole = static_cast<std::int64_t>(values.nbytes()),
                      .packed = made->bytes()});
  return made;
}

Kept Packer::kept() {
  Kept kept;
  for (const Entry& each : entries_) {
    ++kept.tensors;
    kept.whole += each.whole;
    kept.packed += each.packed;
    if (each.storage.expired()) continue;
    kept.held += each.whole;
    kept.holders += (kept.holders.empty() ? "" : ", ") + each.node;
  }
  return kept;
}

std::vector<std::string> Packer::take_unpacked() {
  return std::exchange(unpacked_, {});
}

}  // namespace packed_activations
