// Sparse features -> hidden layer with ReLU -> a logit a class, of which a training pass computes the active
// ones alone; evaluations compute all. Hash tables over the rows of the output layer say which are active;
// they are made anew on a schedule by the steps of the run, at the first pass of a step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <trainyard/helpers/sparse_rows.hpp>
#include <trainyard/manifest.hpp>
#include <trainyard/mixins/halves.hpp>
#include <trainyard/mixins/reads_rows.hpp>
#include <trainyard/network.hpp>

#include "active_set.hpp"
#include "layers.hpp"

namespace slide {

/// After the i-th time, from 0, the tables stand for every_steps exp(growth i) steps.
struct Rehash {
  std::int64_t every_steps = 50;
  double growth = 0.1;
  std::int64_t new_functions_every = 1000;

  static void describe(trainyard::Fields<Rehash>& m) {
    m.option("every_steps", &Rehash::every_steps,
             "steps to the second making of the tables; 0: there is none")
        .min(0);
    m.option("growth", &Rehash::growth, "the n-th gap is exp(growth n) times as long as the first")
        .range(0.0, 10.0);
    m.option("new_functions_every", &Rehash::new_functions_every,
             "steps after which the tables that are made next have new hash functions; 0: never")
        .min(0);
  }
};

struct NetworkShape {
  std::int64_t features = 0, hidden = 128, classes = 0;
  bool sampled = true;  ///< else training passes compute all logits
  HashShape hash;
  std::int64_t bucket_size = 128;
  Policy bucket = Policy::reservoir;
  ActiveOptions active;
  Rehash rehash;
  Sums sums = Sums::ordered;
  bool halves = false;  ///< passes read the upper halves of the output layer's weights
};

/// Of the samples of training passes, since they were asked for last.
struct Activity {
  std::int64_t samples = 0;
  std::int64_t active = 0, retrieved = 0;  ///< classes; retrieved: by the tables, labels apart
};

class SlideNetwork final : public trainyard::Network,
                           public trainyard::ReadsRows,
                           public trainyard::HoldsHalves {
 public:
  SlideNetwork(const NetworkShape& shape, std::uint64_t seed);

  at::Tensor forward(const trainyard::Batch& batch, const trainyard::ForwardContext& context) override;
  std::vector<trainyard::NamedTensor> parameters() const override;
  std::vector<trainyard::NamedTensor> buffers() const override;
  std::vector<std::int64_t> output_shape() const override { return {shape_.classes}; }
  void to(at::Device device) override;
  void adopt(const std::vector<trainyard::NamedTensor>& tensors) override;

  void on_read(Listener listener) override { listener_ = std::move(listener); }

  std::vector<trainyard::Halves> halves() const override;

  Activity take_activity();

 private:
  struct Schedule;
  Schedule& schedule() const;
  bool hashes() const { return tables_.has_value(); }
  RowSets features_of(const trainyard::SparseRows& rows) const;
  void adopt_tables(const at::Tensor& starts, const at::Tensor& ids, const at::Tensor& schedule);
  void make_tables(std::int64_t step);
  RowSets choose(const at::Tensor& hidden, const at::Tensor& target,
                 const trainyard::ForwardContext& context);

  NetworkShape shape_;
  trainyard::RandomStream fill_, draws_, reservoirs_;
  at::Tensor hidden_weight_, hidden_bias_;  ///< [features, hidden], [hidden]
  at::Tensor output_weight_, output_bias_;  ///< [classes, hidden], [classes]
  at::Tensor output_lower_;                 ///< [classes, hidden]: where weights are halves, the lower ones
  std::optional<Tables> tables_;
  at::Tensor schedule_;  ///< Schedule, as int64
  std::optional<HashFunctions> functions_;
  std::int64_t drawn_ = -1;         ///< which draw `functions_` is
  std::vector<ActiveSet> threads_;  ///< what each thread keeps
  Listener listener_;
  Activity activity_;
};

}  // namespace slide
