// An ensemble of networks that are trained already, as a network that grows: a round adds one of them, perhaps once more
// (Caruana, Niculescu-Mizil, Crew and Ksikes, "Ensemble Selection from Libraries of Models", ICML 2004).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <trainyard/host.hpp>
#include <trainyard/mixins/grows.hpp>
#include <trainyard/model.hpp>
#include <trainyard/network.hpp>

namespace ensemble {

struct Member {
  std::unique_ptr<trainyard::Model> model;  ///< outlives its network
  std::unique_ptr<trainyard::Network> network;
};

class EnsembleNetwork final : public trainyard::Network, public trainyard::Grows {
 public:
  /// Members give outputs of one shape. `from` are the folders of their runs, which the first round reads.
  EnsembleNetwork(std::vector<Member> members, std::vector<std::string> from,
                  const trainyard::BatchSchema& schema, trainyard::Host& host);

  /// The mean of the members' probabilities, as logits, or of their numbers; each counts as often as it was chosen.
  at::Tensor forward(const trainyard::Batch& batch, const trainyard::ForwardContext& context) override;
  std::vector<trainyard::NamedTensor> parameters() const override { return {}; }
  /// How often each member was chosen, and all weights of the members: later runs need no file of these.
  std::vector<trainyard::NamedTensor> buffers() const override;
  std::vector<std::int64_t> output_shape() const override { return shape_; }
  void to(at::Device device) override;
  void adopt(const std::vector<trainyard::NamedTensor>& tensors) override;

  at::Tensor margins(const trainyard::Batch& batch) override { return forward(batch, {}); }
  /// Adds the member with which the mean has the least loss on the validation split: -log of the target's probability,
  /// or the square of the error. What the batch holds counts for nothing.
  void grow(const trainyard::Batch& batch, const at::Tensor& gradient, const at::Tensor& hessian,
            double rate) override;

 private:
  enum class Means : std::uint8_t { classes, binary, numbers };  ///< a logit a class, one of two classes

  std::vector<double> counts() const;
  at::Tensor said(const Member& member, const trainyard::Batch& batch) const;
  void load() const;
  void look();

  std::vector<Member> members_;
  std::vector<std::string> from_;
  std::vector<std::int64_t> shape_;
  Means means_ = Means::numbers;
  trainyard::Host& host_;
  at::Tensor counts_;  ///< [members], in floats
  // On the validation split, in doubles; made by the first round of a process.
  at::Tensor held_;    ///< [members, numbers]: each sample's probability of its class, or its numbers
  at::Tensor target_;  ///< [numbers] that are right; of classes undefined
};

}  // namespace ensemble
