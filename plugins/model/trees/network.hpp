// Boosted trees as a network that grows: no parameters, the trees as a buffer of bytes, and the rows of the training kept
// with their bins and their margins from round to round.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/mixins/grows.hpp>
#include <trainyard/network.hpp>
#include <trainyard/random.hpp>

#include "booster.hpp"

namespace trees {

/// How a tree grows.
struct Growth {
  std::int64_t max_leaves = 31;
  std::int64_t max_depth = 0;
  std::int64_t max_bin = 256;
  double min_child_weight = 1.0;
  double min_gain = 0.0;
  double l1 = 0.0;
  double l2 = 1.0;
  double row_sample = 1.0;
  double column_sample = 1.0;
  bool mirrored = false;  ///< of two outputs, the first is the second with the opposite sign
};

class TreesNetwork final : public trainyard::Network, public trainyard::Grows {
 public:
  TreesNetwork(const Growth& growth, std::int64_t features, std::vector<std::int64_t> output_shape,
               std::uint64_t seed);

  at::Tensor forward(const trainyard::Batch& batch, const trainyard::ForwardContext& context) override;
  std::vector<trainyard::NamedTensor> parameters() const override { return {}; }
  std::vector<trainyard::NamedTensor> buffers() const override;
  std::vector<std::int64_t> output_shape() const override { return output_shape_; }
  void to(at::Device device) override;
  void adopt(const std::vector<trainyard::NamedTensor>& tensors) override;

  at::Tensor margins(const trainyard::Batch& batch) override;
  void grow(const trainyard::Batch& batch, const at::Tensor& gradient, const at::Tensor& hessian,
            double rate) override;

  /// How many batches had rows of which a matrix had to be made: one where all steps have the same.
  std::int64_t matrices_made() const { return matrices_made_; }

 private:
  /// The rows of a training batch in the order of their indices in the data, whatever the order of the batch: sums depend
  /// on it, and a training that goes on begins with another batch.
  struct Rows {
    at::Tensor order;   ///< places in the batch; undefined where they are in order
    at::Tensor values;  ///< [size, features]
  };

  at::Tensor values_of(const trainyard::Batch& batch) const;
  Rows rows_of(const trainyard::Batch& batch) const;
  void keep(const trainyard::Batch& batch);
  void read() const;
  void take(const at::Tensor& bytes) const;
  std::int64_t seen_features() const;
  void sample_columns();
  at::Tensor sampled(const at::Tensor& derivative) const;
  at::Tensor shaped(const at::Tensor& margins) const;
  bool is_mirrored() const { return grown_ < outputs_; }
  void set_threads() const;

  Growth growth_;
  std::int64_t features_, outputs_ = 1;
  std::int64_t grown_ = 1;  ///< outputs that have trees of their own
  std::vector<std::int64_t> output_shape_;
  trainyard::RandomStream row_draws_, column_draws_;

  // The bytes are written when they are asked for, and read where the host has written them.
  mutable at::Tensor bytes_;
  mutable std::uint32_t version_ = 0;  ///< of the bytes that the booster is, but for what it has grown since
  mutable bool has_grown_ = false;     ///< since the bytes were written
  mutable std::optional<Booster> booster_;
  mutable std::int64_t rounds_ = 0;
  mutable int threads_ = 0;

  /// What the matrix was last compared with, which a round asks twice for: rows are many.
  struct Compared {
    at::Tensor input;
    std::uint32_t version = 0;
    std::vector<std::int64_t> indices;
  };
  Compared compared_;
  Rows rows_;
  std::optional<Matrix> matrix_;
  std::int64_t matrices_made_ = 0;
};

}  // namespace trees
