// What ranks exchange: sums of gradients that leave while backward runs, the tail that goes with them, states.
#include <ATen/ATen.h>  // first: it has a CHECK of its own

#include <sched.h>
#include <signal.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <numeric>
#include <thread>

#include "support/ranks.hpp"

#include "core/engine/distributed/reduction.hpp"
#include "core/engine/distributed/together.hpp"
#include "plugins/optimizer/trust_ratio.hpp"

namespace trainyard::distributed {
namespace {

using test::on_ranks;

/// A chain of layers, so that gradients come one after the other, and one layer that nothing reaches.
struct Chain {
  std::vector<at::Tensor> parameters;

  std::vector<NamedTensor> named() const {
    std::vector<NamedTensor> all;
    for (std::size_t i = 0; i < parameters.size(); ++i) all.push_back({std::to_string(i), parameters[i]});
    return all;
  }
  Reduction reduction(Ranks& ranks, std::int64_t bucket_bytes) const {
    return {ranks, named(), make_layout(named(), bucket_bytes, nullptr), nullptr};
  }

  Chain() {
    static const std::vector<at::Tensor> drawn = [] {  // once: the threads of a test share the generator
      at::manual_seed(7);
      std::vector<at::Tensor> tensors;
      for (const std::int64_t width : {6, 300, 40, 5})
        tensors.push_back(at::randn({width, tensors.empty() ? 4 : tensors.back().size(0)}) * 0.1);
      tensors.push_back(at::randn({3}));
      return tensors;
    }();
    for (const at::Tensor& each : drawn) parameters.push_back(each.clone().set_requires_grad(true));
  }

  at::Tensor loss(const at::Tensor& input) const {
    at::Tensor x = input;
    for (std::size_t i = 0; i + 1 < parameters.size(); ++i) x = x.matmul(parameters[i].t()).tanh();
    return x.pow(2).sum();
  }
};

/// The batch of a rank: other numbers, and another number of rows.
at::Tensor batch(int rank) {
  return at::arange((rank + 1) * 4, at::kFloat).view({-1, 4}).div(10.0 * (rank + 1));
}

std::vector<at::Tensor> expected(int ranks, const std::vector<double>& shares) {
  Chain chain;
  for (int rank = 0; rank < ranks; ++rank) {
    if (shares[static_cast<std::size_t>(rank)] == 0.0) continue;
    (chain.loss(batch(rank)) * shares[static_cast<std::size_t>(rank)]).backward();
  }
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : chain.parameters) gradients.push_back(parameter.grad());
  return gradients;
}

void check_gradients(const Chain& chain, const std::vector<at::Tensor>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor gradient = chain.parameters[i].grad();
    CHECK_HERE(gradient.defined() == expected[i].defined());
    if (gradient.defined()) CHECK_HERE(at::allclose(gradient, expected[i], 1e-5, 1e-6));
  }
}

TEST_CASE("Gradients are summed over the ranks, whether they leave during backward or after it") {
  for (const int ranks : {2, 3})
    for (const std::int64_t bucket : {std::int64_t{100}, std::int64_t{20'000}, std::int64_t{1} << 25})
      for (const bool early : {true, false})
        on_ranks(ranks, [&](World& world) {
          Chain chain;
          Reduction reduction = chain.reduction(world, bucket);
          for (int step = 0; step < 3; ++step) {
            for (at::Tensor& parameter : chain.parameters) parameter.mutable_grad() = at::Tensor();
            if (early) reduction.collect();
            chain.loss(batch(world.rank())).backward();
            reduction.finish({.weight = 1.0}, ranks);  // no mean
            check_gradients(chain,
                            expected(ranks, std::vector<double>(static_cast<std::size_t>(ranks), 1.0)));
          }
        });
}

TEST_CASE("Sparse gradients of other rows on each rank are summed") {
  for (const std::int64_t bucket :
       {std::int64_t{4}, std::int64_t{1} << 25})  // summed where they lie, and together
    on_ranks(2, [&](World& world) {
      const auto touched = [](int rank) { return at::arange(rank, 6, 2 + rank, at::kLong); };
      at::Tensor table = at::ones({6, 2}).requires_grad_(true), dense = at::ones({6, 2}).requires_grad_(true);
      Reduction reduction(world, {{"table", table}}, make_layout({{"table", table}}, bucket, nullptr),
                          nullptr);
      for (int rank = 0; rank < 2; ++rank)
        (at::embedding(dense, touched(rank)).sum() * (rank + 1.0)).backward();
      reduction.collect();
      (at::embedding(table, touched(world.rank()), -1, false, /*sparse=*/true).sum() * (world.rank() + 1.0))
          .backward();
      reduction.finish({.weight = 1.0}, 2.0);
      CHECK_HERE(at::equal(table.grad(), dense.grad()));
    });
}

TEST_CASE("A rank without samples takes part, and the mean is over what the others have") {
  on_ranks(3, [](World& world) {
    Chain chain;
    Reduction reduction = chain.reduction(world, 1000);
    const double share = world.rank() == 1 ? 0.0 : 1.0 / 4.0;  // of four that were expected
    reduction.collect();
    if (share > 0.0) (chain.loss(batch(world.rank())) * share).backward();
    const Tail all = reduction.finish({.loss = 1.5 * world.rank(),
                                       .counted = 2.0,
                                       .weight = share > 0.0 ? 1.0 : 0.0,
                                       .skipped = world.rank() == 1 ? 1 : 0,
                                       .bits = 1U << (3 * world.rank())},
                                      4.0);
    check_gradients(chain, expected(3, {0.5, 0.0, 0.5}));
    CHECK_HERE(all.loss == 4.5);
    CHECK_HERE(all.counted == 6.0);
    CHECK_HERE(all.weight == 2.0);
    CHECK_HERE(all.skipped == 1);
    CHECK_HERE(all.bits == (1U | 1U << 3 | 1U << 6));
  });
}

TEST_CASE("What a rank had in the step before is not in the sum where it has nothing now") {
  on_ranks(3, [](World& world) {
    Chain chain;
    Reduction reduction = chain.reduction(world, 1000);
    for (int step = 0; step < 6; ++step) {
      const int without = step % 3;
      std::vector<double> shares(3, 1.0);
      shares[static_cast<std::size_t>(without)] = 0.0;
      for (at::Tensor& parameter : chain.parameters) parameter.mutable_grad() = at::Tensor();
      reduction.collect();
      if (world.rank() != without) chain.loss(batch(world.rank())).backward();
      reduction.finish({.weight = world.rank() == without ? 0.0 : 1.0}, 2.0);
      check_gradients(chain, expected(3, shares));
    }
  });
}

TEST_CASE("Buckets lie as backward goes, the first one small, and what is compressed ahead of the rest") {
  struct Large final : Compressor {
    bool takes(const NamedTensor& parameter) const override { return parameter.tensor.numel() > 10; }
    void open(Ranks&, std::span<const BucketPlan>, const RunScale&) override {}
    std::unique_ptr<Exchange> reduce(std::size_t, const at::Tensor&, std::int64_t) override { return {}; }
    void load_all(std::span<const State>) override {}
  };
  const auto numbers = [](const Layout& layout) {
    std::vector<std::vector<std::size_t>> all;
    for (const Layout::Bucket& bucket : layout.buckets) {
      all.push_back(bucket.parameters);
      std::int64_t elements = 0;
      for (const BucketPlan::Part& part : bucket.plan.parts) {
        CHECK(part.offset == elements);
        elements += part.shape.front();
      }
      CHECK(bucket.plan.elements == elements);
    }
    return all;
  };
  using Numbers = std::vector<std::vector<std::size_t>>;
  std::vector<NamedTensor> parameters;
  for (const std::int64_t length : {4, 100, 4, 100, 100, 4, 100})
    parameters.push_back({std::to_string(parameters.size()), at::zeros({length})});
  CHECK(numbers(make_layout(parameters, 1 << 20, nullptr)) == Numbers{{6, 5, 4, 3, 2, 1, 0}});
  CHECK(numbers(make_layout(parameters, 816, nullptr)) == Numbers{{6, 5, 4}, {3, 2, 1}, {0}});
  Large large;
  const Layout layout = make_layout(parameters, 800, &large);
  CHECK(numbers(layout) == Numbers{{6, 4}, {3, 1}, {5, 2, 0}});
  CHECK(layout.buckets[0].compressed);
  CHECK(layout.buckets[1].compressed);
  CHECK_FALSE(layout.buckets[2].compressed);
  // A quarter of a million floats, and then as many as there is room for.
  std::vector<NamedTensor> many;
  for (int i = 0; i < 6; ++i) many.push_back({std::to_string(i), at::zeros({200'000})});
  CHECK(numbers(make_layout(many, 1 << 21, nullptr)) == Numbers{{5}, {4, 3}, {2, 1}, {0}});
}

TEST_CASE("A large gradient is summed where it lies, in its turn, and the last bucket has none") {
  std::vector<NamedTensor> parameters;
  for (const std::int64_t length : {1 << 20, 4, 4, (1 << 20) - 1, 4, 1 << 20, 4})
    parameters.push_back({std::to_string(parameters.size()), at::zeros({length})});
  const Layout layout = make_layout(parameters, 25 << 20, nullptr);
  std::vector<std::vector<std::size_t>> numbers;
  std::vector<bool> in_place;
  for (const Layout::Bucket& bucket : layout.buckets) {
    numbers.push_back(bucket.parameters);
    in_place.push_back(bucket.in_place);
  }
  CHECK(numbers == std::vector<std::vector<std::size_t>>{{5}, {6, 4}, {0}, {3, 2, 1}});
  CHECK(in_place == std::vector<bool>{true, false, true, false});
  on_ranks(2, [](World& world) {
    Chain chain;
    Reduction reduction = chain.reduction(world, 5000);  // 300 x 6 and 40 x 300 floats are more
    for (int step = 0; step < 2; ++step) {
      reduction.collect();
      chain.loss(batch(world.rank())).backward();
      reduction.finish({.weight = 1.0}, 1.0);
      for (const std::size_t i : {0, 1, 2, 3}) {
        const at::Tensor& gradient = chain.parameters[i].grad();
        CHECK_HERE((gradient.storage().nbytes() == gradient.nbytes()) == (i == 1 || i == 2));
      }
      for (at::Tensor& each : chain.parameters) each.mutable_grad() = at::Tensor();
    }
  });
}

TEST_CASE("Buckets leave in one order, in whatever order the ranks' gradients come") {
  on_ranks(2, [](World& world) {
    std::vector<at::Tensor> weights;
    std::vector<NamedTensor> named;
    for (const std::int64_t length : {30, 40, 50, 60}) {
      weights.push_back(at::ones({length}).set_requires_grad(true));
      named.push_back({std::to_string(length), weights.back()});
    }
    Reduction reduction(world, named, make_layout(named, 4, nullptr), nullptr);
    for (int step = 0; step < 3; ++step) {
      for (at::Tensor& weight : weights) weight.mutable_grad() = at::Tensor();
      at::Tensor x = at::ones({}).set_requires_grad(true);
      // Backward meets them in the order of the list, on the other rank from its end.
      for (std::size_t i = 0; i < weights.size(); ++i)
        x = x * weights[world.rank() == 0 ? i : weights.size() - 1 - i].mean();
      reduction.collect();
      x.backward();
      reduction.finish({.weight = 1.0}, 2.0);
      for (const at::Tensor& weight : weights)
        CHECK_HERE(
            at::allclose(weight.grad(), at::full_like(weight, 2.0 / static_cast<double>(weight.numel()))));
    }
  });
}

TEST_CASE("What is summed is the same on all ranks, to the bit") {
  std::vector<std::string> digests(4);
  on_ranks(4, [&](World& world) {
    Chain chain;
    Reduction reduction = chain.reduction(world, 500);
    reduction.collect();
    chain.loss(batch(world.rank())).backward();
    reduction.finish({.weight = 0.3}, 1.0);
    State state;
    for (std::size_t i = 0; i + 1 < chain.parameters.size(); ++i)
      state.tensors.emplace(std::to_string(i), chain.parameters[i].grad());
    digests[static_cast<std::size_t>(world.rank())] = digest(state);
  });
  for (const std::string& each : digests) CHECK(each == digests.front());
}

namespace {

/// What is exchanged, by group: "all", or how many ranks it has.
using Notes = std::map<std::string, int>;

class NotedGroup final : public RankGroup {
 public:
  NotedGroup(std::unique_ptr<RankGroup> group, Notes& notes) : group_(std::move(group)), notes_(notes) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::unique_ptr<Exchange> all_reduce(const at::Tensor& tensor) override {
    note("all_reduce");
    return group_->all_reduce(tensor);
  }
  std::unique_ptr<Exchange> all_gather(const at::Tensor& all, const at::Tensor& own) override {
    note("all_gather");
    return group_->all_gather(all, own);
  }
  std::unique_ptr<Exchange> reduce_scatter(const at::Tensor& own, const at::Tensor& all) override {
    note("reduce_scatter");
    return group_->reduce_scatter(own, all);
  }
  std::unique_ptr<Exchange> broadcast(const at::Tensor& tensor, int root) override {
    note("broadcast");
    return group_->broadcast(tensor, root);
  }

 private:
  void note(const std::string& what) { ++notes_[std::to_string(size()) + " " + what]; }

  std::unique_ptr<RankGroup> group_;
  Notes& notes_;
};

class NotedRanks final : public Ranks {
 public:
  explicit NotedRanks(World& world) : world_(world) {}
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  int local_rank() const override { return world_.local_rank(); }
  int local_size() const override { return world_.local_size(); }
  std::unique_ptr<Exchange> all_reduce(const at::Tensor& tensor) override {
    ++notes["all all_reduce"];
    return world_.all_reduce(tensor);
  }
  std::unique_ptr<Exchange> all_gather(const at::Tensor& all, const at::Tensor& own) override {
    ++notes["all all_gather"];
    return world_.all_gather(all, own);
  }
  std::unique_ptr<Exchange> reduce_scatter(const at::Tensor& own, const at::Tensor& all) override {
    ++notes["all reduce_scatter"];
    return world_.reduce_scatter(own, all);
  }
  std::unique_ptr<Exchange> broadcast(const at::Tensor& tensor, int root) override {
    ++notes["all broadcast"];
    return world_.broadcast(tensor, root);
  }
  std::unique_ptr<RankGroup> group(const std::vector<int>& ranks) override {
    auto group = world_.group(ranks);
    return group ? std::make_unique<NotedGroup>(std::move(group), notes) : nullptr;
  }

  Notes notes;

 private:
  World& world_;
};

}  // namespace

TEST_CASE("Gradients that are handed over leave at once, in one order whatever that of the ranks") {
  on_ranks(2, [](World& world) {
    Chain chain;
    NotedRanks ranks(world);
    Reduction reduction =
        chain.reduction(ranks, 100);  // a bucket each, of which the last one waits for the tail
    for (int step = 0; step < 3; ++step) {
      for (at::Tensor& parameter : chain.parameters) parameter.mutable_grad() = at::Tensor();
      ranks.notes.clear();
      chain.loss(batch(world.rank())).backward();
      CHECK_HERE(ranks.notes.empty());
      const std::size_t count = chain.parameters.size();
      for (std::size_t i = 0; i < count; ++i) reduction.give(world.rank() == 0 ? i : count - 1 - i);
      CHECK_HERE(ranks.notes["all all_reduce"] >= 3);
      const int early = ranks.notes["all all_reduce"];
      reduction.finish({.weight = 1.0}, 2.0);  // no mean
      CHECK_HERE(ranks.notes["all all_reduce"] == early + 1);
      check_gradients(chain, expected(2, {1.0, 1.0}));
    }
  });
}

TEST_CASE("Ranks of several machines sum what is short by nodes, and the rest in a ring of all") {
  const auto by_nodes = [](int nodes, int local, int times) {
    const std::string within = std::to_string(local) + " ", between = std::to_string(nodes) + " ";
    return Notes{
        {within + "reduce_scatter", times}, {between + "all_reduce", times}, {within + "all_gather", times}};
  };
  const Notes rings = {{"all all_reduce", 2}};
  Notes both = by_nodes(2, 2, 1);
  both["all all_reduce"] = 1;
  const struct {
    int ranks, local;
    Notes step;
  } cases[] = {{4, 4, rings},
               {4, 1, rings},
               {5, 2, rings},  // the last one is alone on its machine
               {4, 2, both},
               // Two messages are spared, and three, in place of one: the long one is short for that.
               {6, 3, by_nodes(2, 3, 2)},
               {6, 2, by_nodes(3, 2, 2)}};
  for (const auto& each : cases) {
    std::vector<std::string> digests(static_cast<std::size_t>(each.ranks));
    on_ranks(
        each.ranks,
        [&](World& world) {
          NotedRanks ranks(world);
          const std::vector<NamedTensor> named = {{"short", at::zeros({101}).set_requires_grad(true)},
                                                  {"long", at::zeros({150, 100}).set_requires_grad(true)}};
          Reduction reduction(ranks, named, make_layout(named, 1000, nullptr), nullptr);
          CHECK_HERE(ranks.notes.empty());
          State sums;
          for (int step = 0; step < 2; ++step) {
            for (const NamedTensor& parameter : named) parameter.tensor.mutable_grad() = at::Tensor();
            reduction.collect();
            for (const NamedTensor& parameter : named)
              (parameter.tensor *
               (at::arange(parameter.tensor.numel()).view_as(parameter.tensor) + 0.3 * world.rank()))
                  .sum()
                  .backward();
            const Tail all = reduction.finish(
                {.loss = 0.1 * world.rank(), .counted = 1.0, .weight = 1.0, .bits = 1U << world.rank()},
                each.ranks);
            CHECK_HERE(all.bits == (1U << each.ranks) - 1);
            CHECK_HERE(std::exchange(ranks.notes, {}) == each.step);
            const double shift = 0.3 * each.ranks * (each.ranks - 1) / 2;
            for (const NamedTensor& parameter : named) {
              const at::Tensor sum = parameter.tensor.grad();
              CHECK_HERE(
                  at::allclose(sum, (at::arange(sum.numel()) * each.ranks + shift).view_as(sum), 1e-6));
              sums.tensors.emplace(parameter.name + std::to_string(step), sum.clone());
            }
            sums.scalars.emplace("loss" + std::to_string(step), all.loss);
          }
          digests[static_cast<std::size_t>(world.rank())] = digest(sums);
        },
        each.local);
    for (const std::string& digest : digests) CHECK(digest == digests.front());
  }
}

TEST_CASE("Trust ratios that ranks share out are those that each computes alone, and no rank computes many") {
  constexpr std::size_t layers = 70;
  const auto drawn = [](std::uint64_t seed) {
    at::manual_seed(seed);
    std::vector<at::Tensor> tensors;
    for (std::size_t i = 0; i < layers; ++i)
      tensors.push_back(
          at::randn({static_cast<std::int64_t>(1 + i * i % 13), static_cast<std::int64_t>(3 + i)}));
    tensors[5].zero_();  // a ratio of 1
    return tensors;
  };
  const std::vector<at::Tensor> weights = drawn(1), steps = drawn(2);
  const std::vector<at::Tensor> drawn_updates = drawn(3);
  std::vector<at::Tensor> alone = drawn(3);
  optimizers::scale_by_trust(alone, weights, steps, 2, nullptr, 0.001, 0.01);
  std::vector<std::int64_t> sizes;
  for (const at::Tensor& weight : weights) sizes.push_back(weight.numel());
  const std::vector<int> owner = optimizers::owners(sizes, 4);
  std::vector<std::int64_t> work(4, 0);
  for (std::size_t i = 0; i < layers; ++i) work[static_cast<std::size_t>(owner[i])] += sizes[i];
  const std::int64_t all = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  for (const std::int64_t each : work) CHECK(each <= all / 4 + *std::max_element(sizes.begin(), sizes.end()));
  on_ranks(4, [&](World& world) {
    std::vector<at::Tensor> updates;
    for (const at::Tensor& each : drawn_updates) updates.push_back(each.clone());
    optimizers::scale_by_trust(updates, weights, steps, 2, &world, 0.001, 0.01);
    for (std::size_t i = 0; i < layers; ++i) CHECK_HERE(at::equal(updates[i], alone[i]));
    std::size_t computed = 0;
    optimizers::shared_out(world, sizes, at::kCPU, [&](const std::vector<std::size_t>& items) {
      computed = items.size();
      return at::ones({std::ssize(items)});
    });
    CHECK_HERE(computed == static_cast<std::size_t>(std::count(owner.begin(), owner.end(), world.rank())));
  });
}

TEST_CASE("States of all kinds reach every rank as they were") {
  on_ranks(2, [](World& world) {
    State state{
        .owner = "rank " + std::to_string(world.rank()), .version = "1", .scalars = {}, .tensors = {}};
    state.scalars = {
        {"yes", true}, {"whole", std::int64_t{1} << 40}, {"real", 0.1}, {"text", std::string("a\0b", 3)}};
    state.tensors = {{"empty", at::empty({0, 3})},
                     {"numbers", at::arange(6, at::kLong).view({2, 3}).t()},
                     {"bits", at::tensor({1, 0}).to(at::kBool)}};
    const auto all = gather(world, std::vector<State>(static_cast<std::size_t>(world.rank()) + 1, state));
    CHECK_HERE(all.size() == 2);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      CHECK_HERE(all[rank].size() == rank + 1);
      State theirs = all[rank].back();
      CHECK_HERE(theirs.owner == "rank " + std::to_string(rank));
      theirs.owner = state.owner;
      CHECK_HERE(digest(theirs) == digest(state));
    }
  });
}

TEST_CASE("What is cut short is told") {
  State state;
  state.tensors["numbers"] = at::arange(6);
  const std::string whole = to_bytes({state});
  for (std::size_t length = 1; length < whole.size(); ++length)
    CHECK_THROWS_AS(from_bytes(std::string_view(whole).substr(0, length)), DataError);
}

TEST_CASE("Who does not come to a group says why, and the others do not wait for it") {
  for (const int size : {2, 4})
    on_ranks(size, [&](World& world) {
      std::vector<int> all(static_cast<std::size_t>(size));
      std::iota(all.begin(), all.end(), 0);
      for (const int made : {0, 1, 2, 0}) {  // ahead of the trouble
        std::vector<std::unique_ptr<RankGroup>> groups;
        std::string trouble;
        try {
          while (std::ssize(groups) < (world.rank() == 1 ? made : 3)) groups.push_back(world.group(all));
          trouble = world.rank() == 1 ? "no memory" : "";
        } catch (const DistributedError& error) {
          trouble = std::string("a group: ") + error.what();
        }
        CHECK_HERE(trouble == (world.rank() == 1 ? "no memory" : "a group: rank 1: no memory"));
        const std::string heard = world.agree(trouble);
        CHECK_HERE(heard == "rank 1: no memory");
        // The next time they come together.
        const at::Tensor one = at::ones({1});
        world.group(all)->all_reduce(one)->wait();
        CHECK_HERE(one.item<float>() == static_cast<float>(size));
        const std::string nothing = world.agree("");
        CHECK_HERE(nothing.empty());
      }
    });
}

TEST_CASE("Who waits for a rank to make a group hears that it has failed") {
  std::string said;
  CHECK_THROWS(on_ranks(2, [&](World& world) {
    if (world.rank() == 1) {
      world.fail("its disk is full");
      throw std::runtime_error("failed");
    }
    try {
      world.group({0, 1});
    } catch (const DistributedError& error) {
      said = error.what();
      throw;
    }
  }));
  CHECK(said == "rank 1 failed: its disk is full");
}

TEST_CASE("A rank that fails is named to the others, which do not wait") {
  std::vector<std::string> said(3);
  CHECK_THROWS(on_ranks(3, [&](World& world) {
    if (world.rank() == 1) {
      world.fail("its disk is full");
      throw std::runtime_error("failed");
    }
    try {
      for (int i = 0; i < 100; ++i) world.gather("go on");
    } catch (const DistributedError& error) {
      said[static_cast<std::size_t>(world.rank())] = error.what();
      throw;
    }
  }));
  CHECK(said[0] == "rank 1 failed: its disk is full");
  CHECK(said[2] == "rank 1 failed: its disk is full");
}

TEST_CASE("A rank that writes to one that is gone has an error, and is not ended by a signal") {
  on_ranks(2, [](World&) {
    struct sigaction now = {};
    CHECK_HERE(sigaction(SIGPIPE, nullptr, &now) == 0);
    CHECK_HERE(now.sa_handler == SIG_IGN);
  });
}

TEST_CASE("A heartbeat goes on once the store answers again") {
  control::Listening listening;
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  config::RankPlace place{.serves = true, .launcher = pipe[1]};
  place.port = listening.port();
  place.listening = listening.release();
  World world(place, std::chrono::seconds(5), {.beat = World::Milliseconds(10)});
  world.replace_lost();
  c10d::TCPStoreOptions options;
  options.port = place.port;
  options.timeout = std::chrono::seconds(5);
  c10d::TCPStore store("127.0.0.1", options);
  const std::string alive = "trainyard//alive/0", called = "trainyard//replacement";
  const auto beats = [&] {
    const auto before = store.get(alive);
    for (int wait = 0; wait < 200; ++wait, std::this_thread::sleep_for(std::chrono::milliseconds(10)))
      if (store.get(alive) != before) return true;
    return false;
  };
  CHECK(beats());
  store.set(called, std::vector<std::uint8_t>{'x'});  // no number: the heartbeat throws
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  store.deleteKey(called);
  CHECK(beats());
  CHECK_NOTHROW(world.check_others());
  for (const int end : pipe) ::close(end);
}

TEST_CASE("A heartbeat looks for a store that is away until it is back, or the timeout is over") {
  const auto serve = [](std::uint16_t port) {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.isServer = true;
    options.waitWorkers = false;
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  };
  const auto within_10_s = [](const auto& true_by_now) {
    for (int wait = 0; wait < 1000; ++wait, std::this_thread::sleep_for(std::chrono::milliseconds(10)))
      if (true_by_now()) return true;
    return false;
  };
  auto store = serve(0);
  const config::RankPlace place{.port = store->getPort()};
  const std::string alive = "trainyard//alive/0";
  {
    World world(place, std::chrono::seconds(60), {.beat = World::Milliseconds(10)});
    store.reset();
    std::this_thread::sleep_for(std::chrono::seconds(4));  // one try to connect takes up to two
    store = serve(place.port);
    CHECK(within_10_s([&] { return store->check({alive}); }));
    CHECK_NOTHROW(world.check_others());
  }
  World world(place, std::chrono::seconds(1), {.beat = World::Milliseconds(10)});
  store.reset();
  std::string said;
  CHECK(within_10_s([&] {
    try {
      world.check_others();
    } catch (const DistributedError& error) {
      said = error.what();
    }
    return !said.empty();
  }));
  CHECK_THAT(said, Catch::Matchers::Contains("the store has not answered for 1 s (distributed.timeout)"));
}

TEST_CASE("The threads that wait at Gloo's connections take the core from none that sends") {
  const auto batch_threads = [] {
    return std::ranges::count_if(
        std::filesystem::directory_iterator("/proc/self/task"), [](const auto& task) {
          return sched_getscheduler(std::stoi(task.path().filename())) == SCHED_BATCH;
        });
  };
  on_ranks(2, [&](World& world) {
    CHECK_HERE(sched_getscheduler(0) == SCHED_OTHER);
    world.gather("both have theirs");
    CHECK_HERE(batch_threads() >= 2);
    world.gather("both have looked");
  });
}

TEST_CASE("A rank that is gone without a word is named, and one that is busy is waited for") {
  constexpr World::Pulse quick{.beat = World::Milliseconds(50), .silence = World::Milliseconds(1500)};
  std::vector<std::string> said(3);
  std::atomic<int> silences{0};
  CHECK_THROWS(on_ranks(
      3,
      [&](World& world) {
        world.on_silence([&](const std::string&) { ++silences; });
        if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(4500));
        world.gather("there");
        if (world.rank() == 1) throw std::runtime_error("gone");
        try {
          world.gather("go on");
        } catch (const DistributedError& error) {
          said[static_cast<std::size_t>(world.rank())] = error.what();
          throw;
        }
      },
      0, quick, std::chrono::seconds(3)));
  CHECK(silences == 0);
  CHECK_THAT(said[0], Catch::Matchers::StartsWith("rank 1 is gone, without a word"));
}

}  // namespace
}  // namespace trainyard::distributed
