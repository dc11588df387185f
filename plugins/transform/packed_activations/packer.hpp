// Packs what autograd keeps of chosen nodes of a network, pass by pass.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <trainyard/codec.hpp>
#include <trainyard/graph/graph.hpp>
#include <trainyard/network.hpp>

#include "packed.hpp"

namespace packed_activations {

using trainyard::Network, trainyard::NodeActivity;

/// Returns whether nodes of an operator keep activations that can be packed.
bool keeps_activations(std::string_view op);

/// What the chosen nodes of one forward pass keep until backward, in bytes.
struct Kept {
  std::int64_t tensors = 0;
  std::int64_t whole = 0;   ///< what autograd would keep of them
  std::int64_t packed = 0;  ///< what they take, scales included
  std::int64_t held = 0;    ///< of those that are whole in memory as well, as something else keeps them
  std::string holders;      ///< the nodes whose tensors these are
};

/// A tensor that is kept in 8 bits for one or more functions of the backward pass.
class Activation {
 public:
  Activation(const at::Tensor& values, const Quantiser& quantiser, bool keeps_positive,
             std::shared_ptr<const Codec> codec)
      : codec_(std::move(codec)), tensor_(values, quantiser, keeps_positive, codec_.get()) {}

  void add_reader() { ++readers_; }
  /// Returns its values, flat. They are kept until as many asked as there are readers. Any thread.
  at::Tensor values();
  std::int64_t bytes() const { return static_cast<std::int64_t>(tensor_.bytes()); }

 private:
  const std::shared_ptr<const Codec> codec_;  ///< backward may come when the network is gone
  const PackedTensor tensor_;
  std::mutex mutex_;
  int readers_ = 0, asked_ = 0;
  at::Tensor values_;
};

/// Packs the activations of a network's chosen nodes while its passes go on. One pass at a time.
class Packer : public std::enable_shared_from_this<Packer> {
 public:
  /// `nodes` are the names of the chosen ones.
  Packer(const Network& network, std::set<std::string, std::less<>> nodes, const Quantiser& quantiser,
         std::shared_ptr<const Codec> codec);

  /// Looks at the passes of the network from now on, in the place of another packer of this owner (Network::add_tap). The
  /// network's tap shares this object.
  void watch(Network& network, const void* owner);
  bool watches(const Network& network) const { return &network_ == &network; }

  /// Returns what the last forward pass keeps; to be called behind it and ahead of its backward.
  Kept kept();
  /// Returns chosen nodes of which nothing was found that could be packed, though their output has a gradient, with what
  /// computes it; each only once.
  std::vector<std::string> take_unpacked();

 private:
  /// One tensor of this pass. The weak pointer keeps the address from being given to another one.
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::int64_t offset, count;
    at::ScalarType dtype;
    bool by_sign;
    std::string node;
    std::weak_ptr<Activation> activation;
    std::int64_t whole, packed;
  };
  class Hooks;

  void see(const NodeActivity& activity);
  void begin_pass();
  void note_inputs(const NodeActivity& activity);
  bool stays(const at::Tensor& tensor) const;
  std::shared_ptr<Activation> activation_of(const at::Tensor& values, bool by_sign);

  const Network& network_;
  const std::set<std::string, std::less<>> nodes_;
  const Quantiser quantiser_;
  const std::shared_ptr<const Codec> codec_;
  std::string first_;  ///< node that every pass runs first
  std::map<std::string, std::vector<std::size_t>, std::less<>>
      from_batch_;                            ///< inputs of nodes that are the network's
  std::set<const c10::StorageImpl*> others_;  ///< of this pass: weights, and what the batch itself keeps
  std::vector<Entry> entries_;
  std::string node_;  ///< the one that is being seen
  std::set<std::string, std::less<>> told_;
  std::vector<std::string> unpacked_;
};

}  // namespace packed_activations
