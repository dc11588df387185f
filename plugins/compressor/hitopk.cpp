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
#include <optional>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <trainyard/helpers/nodes.hpp>

#include "sparse.hpp"

namespace {

enum class AutoDense { never, formula, measured };
constexpr std::size_t turns = 5;  ///< of each way, where they are measured

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

    Options() { method = kernels::Method::radix; }  // the fastest here, and exact
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
        "(3 nodes) for values of 16 bits); or as measured in the first ten steps, which may come out "
        "otherwise in another run");
    m.hook<&HiTopK::stepped>(Event::after_step);
    m.hook<&HiTopK::saving>(Event::before_checkpoint).sink();
    m.hook<&HiTopK::ended>(Event::fit_end).sink();
  }
  explicit HiTopK(const Options& options)
      : BucketCompressor(options), options_(options), pairs_(options.selection(), options.value_dtype) {}

  void stepped(StepContext&) { take_step(); }
  void saving(StepContext& context) { note_checkpoint(context); }
  void ended(StepContext& context) { tell_kept_back(context); }

  void open(Ranks& ranks, std::span<const BucketPlan> buckets, const RunScale& scale) override {
    BucketCompressor::open(ranks, buckets, scale);
    make_groups();
    std::vector<std::int64_t> elements;
    shards_.clear();
    for (const BucketPlan& bucket : buckets) {
      Shards& shards = shards_.emplace_back(Shards{.sum = {*within_, bucket.elements, at::empty({0})}});
      elements.push_back(shards.own().numel());
      shards.k = std::min(share_of(bucket.elements, options_.density / static_cast<double>(local_)),
                          elements.back());
    }
    residuals_.open(elements);
    keep(residuals_);
    measuring_ = options_.auto_dense == AutoDense::measured && nodes_ > 1;
    for (Shards& shards : shards_) shards.dense = is_dense();
  }

  void save(StateWriter& state) const override {
    residuals_.save(state);
    state.scalar("local_world_size", local_);
    if (measuring_) return;
    state.scalar("chosen_for", ways());
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
    if (measuring_) return measure(bucket, gradients, step);
    return reduce_shards(bucket, gradients, step, shards_[bucket].dense);
  }
  std::unique_ptr<Exchange> sum(std::size_t bucket, const at::Tensor& gradients) override {
    return reduce_shards(bucket, gradients, 0, true);
  }
  void report() override {
    const double between = between_->take() + (back_ ? back_->take() : 0.0);
    host().metric("wire_bytes", within_->take() + between);
    host().metric("wire_bytes_between_nodes", between);
    report_selections(host(), pairs_);
    if (measuring_ && shards_.front().seconds[false].size() == turns) choose();
  }

 private:
  struct Shards {
    SumByNodes sum;
    std::int64_t k = 0;
    bool dense = false;
    std::vector<float> seconds[2];  ///< of pairs, of all, between nodes, while they are measured
    const at::Tensor& own() const { return sum.shard(); }
  };

  void make_groups() {
    local_ = options_.local_world_size > 0 ? options_.local_world_size : ranks().local_size();
    const auto size = static_cast<std::int64_t>(ranks().size());
    if (size % local_ != 0)
      throw ConfigError("distributed.compressor.local_world_size = " + std::to_string(local_) +
                        " does not divide " + std::to_string(size) + " ranks into nodes");
    nodes_ = size / local_;
    const auto make = [&](auto group_of) {
      return CountedGroup(group_of(ranks(), static_cast<int>(local_)));
    };
    within_.emplace(make(group_within));
    between_.emplace(make(group_between));
    back_.reset();
    if (nodes_ == 2) back_.emplace(make(group_between));
  }

  /// As far as it is known ahead of the first step.
  bool is_dense() const {
    if (options_.auto_dense == AutoDense::never) return false;
    if (nodes_ == 1) return true;  // nothing goes between nodes
    // 8 d (m - 1) / m bytes against (4 + b) density d (m - 1), of which b for a value
    return options_.density >= 8.0 / (static_cast<double>((4 + bytes_of(options_.value_dtype)) * nodes_));
  }

  std::unique_ptr<Exchange> measure(std::size_t bucket, const at::Tensor& gradients, std::int64_t step);
  void choose();
  std::unique_ptr<Exchange> reduce_shards(std::size_t bucket, const at::Tensor& gradients, std::int64_t step,
                                          bool dense);
  void sum_between(std::size_t bucket, std::int64_t step, bool dense);
  void send(Shards& shards, const at::Tensor& acc, std::uint64_t random);
  void gather(const at::Tensor& all, const at::Tensor& own);
  /// Between which ways is chosen.
  std::string ways() const {
    return "density " + std::to_string(options_.density) + ", " +
           std::to_string(bytes_of(options_.value_dtype)) + " bytes a value";
  }
  void load_choices(const StateReader& state) {
    if (!measuring_ || !state.has_scalar("chosen_for") || state.text("chosen_for") != ways()) return;
    measuring_ = false;
    for (std::size_t bucket = 0; bucket < shards_.size(); ++bucket)
      shards_[bucket].dense = state.boolean("dense/" + std::to_string(bucket));
  }

  const Options options_;
  Pairs pairs_;
  std::int64_t local_ = 1, nodes_ = 1;
  bool measuring_ = false;
  std::optional<CountedGroup> within_, between_;
  std::optional<CountedGroup> back_;  ///< of two nodes: once more between them
  std::vector<Shards> shards_;        ///< by bucket
  Residuals residuals_;               ///< of the shard
};

std::unique_ptr<Exchange> HiTopK::reduce_shards(std::size_t bucket, const at::Tensor& gradients,
                                                std::int64_t step, bool dense) {
  return shards_[bucket].sum.sum(gradients,
                                 [this, bucket, step, dense] { sum_between(bucket, step, dense); });
}

/// Steps 2 to 4. A residual that was kept, for instance by other nodes, also leaves where all is sent.
void HiTopK::sum_between(std::size_t bucket, std::int64_t step, bool dense) {
  Shards& shards = shards_[bucket];
  if (!options_.error_feedback && !dense) return send(shards, shards.own(), random(bucket, step).bits(0));
  if (options_.error_feedback && !dense)
    return send(shards, residuals_.add(bucket, shards.own()), random(bucket, step).bits(0));
  shards.own().add_(residuals_[bucket]);
  residuals_.clear(bucket);
  between_->all_reduce(shards.own())->wait();
}

/// The largest of `acc`, which may be the shard, go between the nodes; the shard becomes their sum.
void HiTopK::send(Shards& shards, const at::Tensor& acc, std::uint64_t random) {
  const at::Tensor own = pairs_.take(acc, shards.k, random);
  const at::Tensor all = at::empty({own.numel() * nodes_}, own.options());
  gather(all, own);
  shards.own().zero_();
  pairs_.add(all, shards.k, shards.own());
}

/// Between two nodes each sends over a connection of its own. Gloo's all_gather of two ranks has one for both ways,
/// on which the rank that comes second says that it is ready to receive behind half of what it sends: the other waits
/// for that, and all takes half as long again.
void HiTopK::gather(const at::Tensor& all, const at::Tensor& own) {
  if (!back_) return between_->all_gather(all, own)->wait();
  const at::Tensor first = all.narrow(0, 0, own.numel()), second = all.narrow(0, own.numel(), own.numel());
  (between_->rank() == 0 ? first : second).copy_(own);
  const auto there = between_->broadcast(first, 0), back = back_->broadcast(second, 1);
  there->wait();
  back->wait();
}

/// One way and the other in turn, each as a step has it, once all are there.
std::unique_ptr<Exchange> HiTopK::measure(std::size_t bucket, const at::Tensor& gradients,
                                          std::int64_t step) {
  Shards& shards = shards_[bucket];
  const bool dense = shards.seconds[true].size() == shards.seconds[false].size();
  return shards.sum.sum(gradients, [this, &shards, bucket, step, dense] {
    between_->group().all_reduce(at::zeros({1}))->wait();
    const auto begun = std::chrono::steady_clock::now();
    sum_between(bucket, step, dense);
    const std::chrono::duration<float> took = std::chrono::steady_clock::now() - begun;
    shards.seconds[dense].push_back(took.count());
  });
}

/// By the medians, added up over the ranks so that all come to the same.
void HiTopK::choose() {
  const at::Tensor medians = at::zeros({std::ssize(shards_), 2});
  float* const all = medians.mutable_data_ptr<float>();
  for (std::size_t bucket = 0; bucket < shards_.size(); ++bucket)
    for (std::size_t way = 0; way < 2; ++way) {
      std::vector<float>& seconds = shards_[bucket].seconds[way];
      std::nth_element(seconds.begin(), seconds.begin() + turns / 2, seconds.end());
      all[2 * bucket + way] = seconds[turns / 2];
    }
  ranks().all_reduce(medians)->wait();
  for (std::size_t bucket = 0; bucket < shards_.size(); ++bucket) {
    const float pairs = all[2 * bucket], dense = all[2 * bucket + 1];
    shards_[bucket].dense = dense <= pairs;
    if (ranks().rank() == 0)
      host().log(LogLevel::info, "bucket " + std::to_string(bucket) + ": " + std::to_string(dense) +
                                     " s dense, " + std::to_string(pairs) + " s sparse, of all ranks");
  }
  measuring_ = false;
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
    const std::int64_t elements = buckets()[bucket].elements, length = shards_[bucket].own().numel();
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
