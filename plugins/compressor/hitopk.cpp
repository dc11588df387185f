// HiTopKComm (Shi et al., MLSys 2021, section 3.2): dense within a node, whose links are fast, sparse between
// nodes. Of m nodes with n ranks each, a bucket of d elements, padded to n shards of equal length:
//   1 reduce-scatter within the node: the j-th rank of it has the node's sum of shard j
//   2 acc = shard + e;  I = the k largest of it, k = density d / n;  e = acc with I zeroed
//   3 all-gather of the pairs among the m ranks that have shard j, one of each node
//   4 added up in the order of the nodes
//   5 all-gather of the shards within the node
// Where sending all is no slower, shards are summed as they are (auto_dense).
#include <algorithm>
#include <chrono>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "sparse.hpp"

namespace {

enum class AutoDense { never, formula, measured };

}  // namespace

template <>
struct trainyard::Words<AutoDense> {
  static constexpr std::string_view words[] = {"never", "formula", "measured"};
};

namespace {

using namespace compressors;

class HiTopK final : public BucketCompressor {
 public:
  struct Options : SelectionOptions {
    std::int64_t local_world_size = 0;
    AutoDense auto_dense = AutoDense::formula;
  };
  static void describe(Manifest<Options>& m) {
    m.name("hitopk").version("1.0.0").summary(
        "Sums within a node, and sends the largest sums between nodes.");
    SelectionOptions::describe(m);
    m.option("local_world_size", &Options::local_world_size,
             "ranks of a node; 0: as many as each machine has")
        .min(0);
    m.option(
        "auto_dense", &Options::auto_dense,
        "send all where that is no slower: never; by the bytes (formula: from a density of 1 / nodes on, 4 / "
        "(3 nodes) for values of 16 bits); or as measured at the start, which may come out otherwise in "
        "another run");
    m.hook<&HiTopK::stepped>(Event::after_step);
  }
  explicit HiTopK(const Options& options)
      : BucketCompressor(options), options_(options), pairs_(options.selection(), options.value_dtype) {}

  void stepped(StepContext&) { take_step(); }

  void open(Ranks& ranks, std::span<const BucketPlan> buckets, const RunScale& scale) override {
    BucketCompressor::open(ranks, buckets, scale);
    make_groups();
    std::vector<std::int64_t> elements;
    shards_.clear();
    for (const BucketPlan& bucket : buckets) {
      Shards& shards = shards_.emplace_back();
      shards.length = (bucket.elements + local_ - 1) / local_;
      shards.all = at::zeros({shards.length * local_}, at::TensorOptions(at::kFloat));
      shards.own = at::zeros({shards.length}, at::TensorOptions(at::kFloat));
      shards.k =
          std::min(share_of(bucket.elements, options_.density / static_cast<double>(local_)), shards.length);
      elements.push_back(shards.length);
    }
    residuals_.open(elements);
    keep(residuals_);
    for (std::size_t bucket = 0; bucket < shards_.size(); ++bucket)
      shards_[bucket].dense = better_dense(bucket);
  }

  void save(StateWriter& state) const override {
    residuals_.save(state);
    state.scalar("local_world_size", local_);
    for (std::size_t bucket = 0; bucket < shards_.size(); ++bucket)
      state.scalar("dense/" + std::to_string(bucket), shards_[bucket].dense);
  }
  void load(const StateReader& state) override {
    residuals_.load(state.state());
    load_choices(state);
  }
  void load_all(std::span<const State> saved) override;

 protected:
  std::unique_ptr<Exchange> compress(std::size_t bucket, const at::Tensor& gradients,
                                     std::int64_t step) override {
    return reduce_shards(bucket, gradients, step, shards_[bucket].dense);
  }
  std::unique_ptr<Exchange> sum(std::size_t bucket, const at::Tensor& gradients) override {
    return reduce_shards(bucket, gradients, 0, true);
  }
  void report() override {
    const double between = between_.take();
    host().metric("wire_bytes", wire_.take() + between);
    host().metric("wire_bytes_between_nodes", between);
    report_selections(host(), pairs_);
  }

 private:
  struct Shards {
    std::int64_t length = 0, k = 0;
    bool dense = false;
    at::Tensor all, own;
  };

  /// Of a node, and of those with the same place in each node; every rank makes all of them.
  void make_groups() {
    local_ = options_.local_world_size > 0 ? options_.local_world_size : ranks().local_size();
    const auto size = static_cast<std::int64_t>(ranks().size());
    if (size % local_ != 0)
      throw ConfigError("distributed.compressor.local_world_size = " + std::to_string(local_) +
                        " does not divide " + std::to_string(size) + " ranks into nodes");
    nodes_ = size / local_;
    const auto make = [&](std::int64_t first, std::int64_t stride, std::int64_t count) {
      std::vector<int> members;
      for (std::int64_t i = 0; i < count; ++i) members.push_back(static_cast<int>(first + i * stride));
      return ranks().group(members);
    };
    for (std::int64_t node = 0; node < nodes_; ++node)
      if (auto group = make(node * local_, 1, local_)) node_ = std::move(group);
    for (std::int64_t place = 0; place < local_; ++place)
      if (auto group = make(place, local_, nodes_)) across_ = std::move(group);
  }

  bool better_dense(std::size_t bucket) {
    if (options_.auto_dense == AutoDense::never) return false;
    if (nodes_ == 1) return true;  // nothing goes between nodes
    if (options_.auto_dense == AutoDense::measured) return measure(bucket);
    // 8 d (m - 1) / m bytes against (4 + b) density d (m - 1), of which b for a value
    return options_.density >= 8.0 / (static_cast<double>((4 + bytes_of(options_.value_dtype)) * nodes_));
  }

  bool measure(std::size_t bucket);
  std::unique_ptr<Exchange> reduce_shards(std::size_t bucket, const at::Tensor& gradients, std::int64_t step,
                                          bool dense);
  void sum_between(std::size_t bucket, std::int64_t step, bool dense);
  void send(Shards& shards, const at::Tensor& acc, std::uint64_t random);
  void load_choices(const StateReader& state) {
    if (options_.auto_dense != AutoDense::measured) return;
    for (std::size_t bucket = 0; bucket < shards_.size(); ++bucket)
      shards_[bucket].dense = state.boolean("dense/" + std::to_string(bucket));
  }

  const Options options_;
  Pairs pairs_;
  Wire between_;  ///< between nodes; within them as of all compressors
  std::int64_t local_ = 1, nodes_ = 1;
  std::unique_ptr<RankGroup> node_, across_;
  std::vector<Shards> shards_;  ///< by bucket
  Residuals residuals_;         ///< of the shard
};

std::unique_ptr<Exchange> HiTopK::reduce_shards(std::size_t bucket, const at::Tensor& gradients,
                                                std::int64_t step, bool dense) {
  Shards& shards = shards_[bucket];
  shards.all.narrow(0, 0, gradients.numel()).copy_(gradients);
  if (gradients.numel() < shards.all.numel())
    shards.all.narrow(0, gradients.numel(), shards.all.numel() - gradients.numel()).zero_();
  return then(wire_.reduce_scatter(*node_, shards.own, shards.all), [this, bucket, gradients, step, dense] {
    sum_between(bucket, step, dense);
    Shards& shards = shards_[bucket];
    wire_.all_gather(*node_, shards.all, shards.own)->wait();
    gradients.copy_(shards.all.narrow(0, 0, gradients.numel()));
  });
}

/// Steps 2 to 4. A residual that was kept, for instance by other nodes, also leaves where all is sent.
void HiTopK::sum_between(std::size_t bucket, std::int64_t step, bool dense) {
  Shards& shards = shards_[bucket];
  if (!options_.error_feedback && !dense) return send(shards, shards.own, random(bucket, step).bits(0));
  if (options_.error_feedback && !dense)
    return send(shards, residuals_.add(bucket, shards.own), random(bucket, step).bits(0));
  shards.own.add_(residuals_[bucket]);
  residuals_.clear(bucket);
  between_.all_reduce(*across_, shards.own)->wait();
}

/// The largest of `acc`, which may be the shard, go between the nodes; the shard becomes their sum.
void HiTopK::send(Shards& shards, const at::Tensor& acc, std::uint64_t random) {
  const at::Tensor own = pairs_.take(acc, shards.k, random);
  const at::Tensor all = at::empty({own.numel() * nodes_}, own.options());
  between_.all_gather(*across_, all, own)->wait();
  shards.own.zero_();
  pairs_.add(all, shards.k, shards.own);
}

/// The best of three each, of random numbers, added up over the ranks so that all come to the same.
bool HiTopK::measure(std::size_t bucket) {
  Shards& shards = shards_[bucket];
  at::Tensor numbers = at::empty({shards.length}, shards.own.options());
  const at::Tensor best = at::empty({2}, numbers.options());
  float* const seconds = best.mutable_data_ptr<float>();
  for (int way = 0; way < 2; ++way)
    for (int round = 0; round < 3; ++round) {
      fill_normal(numbers, random(bucket, round), 0.0, 1.0);
      ranks().all_reduce(at::zeros({1}, numbers.options()))->wait();  // all begin at once
      const auto begun = std::chrono::steady_clock::now();
      if (way == 0)
        across_->all_reduce(numbers)->wait();
      else
        send(shards, numbers, 0);
      const float took = std::chrono::duration<float>(std::chrono::steady_clock::now() - begun).count();
      seconds[way] = round == 0 ? took : std::min(seconds[way], took);
    }
  ranks().all_reduce(best)->wait();
  between_.take();
  pairs_.take_statistics();
  if (ranks().rank() == 0)
    host().log(LogLevel::info, "bucket " + std::to_string(bucket) + ": " + std::to_string(seconds[0]) +
                                   " s dense, " + std::to_string(seconds[1]) + " s sparse, of all ranks");
  return seconds[0] <= seconds[1];
}

/// Of other nodes: the residuals of a node, put together, are cut anew; of more nodes than there are now, those
/// whose number is this one's, plus multiples of how many there are, are added up.
void HiTopK::load_all(std::span<const State> saved) {
  std::int64_t local = 0;
  for (const State& state : saved) local = StateReader(state).integer("local_world_size");
  const std::int64_t nodes = local > 0 ? std::ssize(saved) / local : 0;
  if (local == local_ && nodes == nodes_)
    return load(StateReader(saved[static_cast<std::size_t>(ranks().rank())]));
  if (local < 1 || nodes * local != std::ssize(saved))
    throw DataError("distributed.compressor: the checkpoint has residuals of " +
                    std::to_string(saved.size()) + " ranks, " + std::to_string(local) + " of each node");
  const std::int64_t node = ranks().rank() / local_, place = ranks().rank() % local_;
  for (std::size_t bucket = 0; bucket < shards_.size(); ++bucket) {
    const std::int64_t elements = buckets()[bucket].elements, length = shards_[bucket].length;
    at::Tensor& own = residuals_[bucket].zero_();
    for (std::int64_t from = node; from < nodes; from += nodes_) {
      const at::Tensor whole = at::zeros({std::max(length * local_, elements)}, own.options());
      for (std::int64_t part = 0; part < local; ++part) {
        const auto& tensors = saved[static_cast<std::size_t>(from * local + part)].tensors;
        const auto found = tensors.find(residuals_.key(bucket));
        const std::int64_t shard = (elements + local - 1) / local, begin = part * shard;
        if (found == tensors.end() || found->second.numel() != shard)
          throw DataError("distributed.compressor: the checkpoint's " + residuals_.key(bucket) +
                          " does not fit a bucket of " + std::to_string(elements) +
                          " elements; keep distributed.bucket_cap_mb and min_compress_elements as they were");
        const std::int64_t count = std::min(shard, elements - begin);
        if (count > 0) whole.narrow(0, begin, count).copy_(found->second.narrow(0, 0, count));
      }
      own.add_(whole.narrow(0, place * length, length));
    }
  }
}

}  // namespace

TRAINYARD_PLUGIN(HiTopK)
