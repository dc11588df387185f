// Sums over ranks of several machines. Within a machine (a node) links are fast, between nodes they are not,
// and a message takes its time however short it is: a ring of all P ranks has 2 (P - 1) of them one after the
// other. With m nodes of n ranks a sum by nodes has 2 (n - 1) within a node and 2 (m - 1) between nodes, and
// sends no more between them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <trainyard/ranks.hpp>

namespace trainyard {

/// Waits for an exchange, then does the rest, on the thread that waits.
class Then final : public Exchange {
 public:
  Then(std::unique_ptr<Exchange> first, std::function<void()> rest)
      : first_(std::move(first)), rest_(std::move(rest)) {}
  void wait() override {
    first_->wait();
    rest_();
  }

 private:
  std::unique_ptr<Exchange> first_;
  std::function<void()> rest_;
};

inline std::unique_ptr<Exchange> then(std::unique_ptr<Exchange> first, std::function<void()> rest) {
  return std::make_unique<Then>(std::move(first), std::move(rest));
}

/// Returns whether m nodes of n ranks should sum so many bytes by nodes, not in a ring of all. That spares
/// messages, of 0.15 ms each (within a node it has 3 (n - 1): Gloo's reduce-scatter is a sum). But what a
/// ring sends between nodes during backward is then sent after it: 2 x 32 KiB for each message that is spared
/// take no longer than that over links of 4 Gbit/s.
inline bool faster_by_nodes(std::int64_t bytes, std::int64_t m, std::int64_t n) {
  constexpr std::int64_t worth_a_message = 32 << 10;
  const std::int64_t spared = 2 * (m * n - 1) - 2 * (m - 1) - 3 * (n - 1);
  return bytes < spared * worth_a_message;
}

/// Makes `count` groups of `size` ranks: the i-th begins at i * apart. Returns the group of this rank.
inline std::unique_ptr<RankGroup> own_group(Ranks& ranks, int count, int size, int apart, int stride) {
  std::unique_ptr<RankGroup> own;
  for (int i = 0; i < count; ++i) {
    std::vector<int> members;
    for (int j = 0; j < size; ++j) members.push_back(i * apart + j * stride);
    if (auto group = ranks.group(members)) own = std::move(group);
  }
  return own;
}

/// Return this rank's group: the ranks of its node, and the ranks with its place in their nodes. Each node
/// has `local` ranks, which divides their number. Every rank calls it, at the same point.
inline std::unique_ptr<RankGroup> group_within(Ranks& ranks, int local) {
  return own_group(ranks, ranks.size() / local, local, local, 1);
}
inline std::unique_ptr<RankGroup> group_between(Ranks& ranks, int local) {
  return own_group(ranks, local, ranks.size() / local, 1, local);
}

/// Sums by nodes of tensors of one length, padded to n shards of equal length:
///   1 reduce-scatter within the node: the j-th rank of it has the node's sum of shard j
///   2 the sum of shard j over the nodes
///   3 all-gather of the shards within the node
/// All ranks get the same bits.
class SumByNodes {
 public:
  /// `within`, which outlives it, is the node's ranks. `like` is a tensor of the same type and device.
  SumByNodes(RankGroup& within, std::int64_t elements, const at::Tensor& like)
      : within_(&within),
        shard_(like.new_zeros({(elements + within.size() - 1) / within.size()})),
        shards_(like.new_zeros({shard_.numel() * within.size()})) {}

  /// Returns the shard that this rank sums between the nodes.
  const at::Tensor& shard() const { return shard_; }

  /// Replaces `tensor` by the sum. Step 1 begins at once; the rest is done on the thread that waits.
  /// `between` does step 2: it replaces shard() by its sum over the nodes, or what stands for it.
  template <class Between>
  std::unique_ptr<Exchange> sum(const at::Tensor& tensor, Between between) {
    const at::Tensor own = shards_.narrow(0, 0, tensor.numel());  // what is behind it stays zero
    own.copy_(tensor);
    return then(within_->reduce_scatter(shard_, shards_), [this, tensor, own, between] {
      between();
      within_->all_gather(shards_, shard_)->wait();
      tensor.copy_(own);
    });
  }

 private:
  RankGroup* within_;
  at::Tensor shard_, shards_;
};

}  // namespace trainyard
