// The executor wavelet with a stage of the network on each of several ranks, which are threads here: the order of passes against
// the card's list schedule, rounds against one batch, rolling waves against the same reads and updates one after the other.
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include <trainyard/testing/ranks.hpp>

#include "plugins/executor/wavelet/order.hpp"
#include "plugins/executor/wavelet/staged.hpp"
#include "wavelet_yard.hpp"

namespace wavelet_stages_tests {

using namespace trainyard;
using namespace wavelet;
using Catch::Matchers::Contains;

namespace {

/// When all waves are through, forward taking 1 and backward 2 in each stage (card, section 2.3).
int makespan(int stages, std::int64_t waves) {
  std::vector<Order> orders;
  std::vector<int> free(static_cast<std::size_t>(stages), 0);
  std::map<std::tuple<Next, std::int64_t, int>, int> ends;
  for (int stage = 0; stage < stages; ++stage) orders.emplace_back(stage, stages, waves);
  for (bool moves = true; moves;) {
    moves = false;
    for (int stage = 0; stage < stages; ++stage) {
      Order& order = orders[static_cast<std::size_t>(stage)];
      int& now = free[static_cast<std::size_t>(stage)];
      const Next next = order.next(waves, waves);
      if (next == Next::nothing) continue;
      const std::int64_t wave = next == Next::forward ? order.forwards() : order.backwards();
      const int before = next == Next::forward ? stage - 1 : stage + 1;
      const auto given = ends.find({next, wave, before});
      if (before >= 0 && before < stages && given == ends.end()) continue;
      now = std::max(now, given == ends.end() ? 0 : given->second) + (next == Next::forward ? 1 : 2);
      ends[{next, wave, stage}] = now;
      order.done(next);
      // Activations of so many waves.
      CHECK(order.forwards() - order.backwards() <= (stage + 1 == stages ? 1 : waves));
      moves = true;
    }
  }
  CHECK(std::ssize(ends) == 2 * stages * waves);
  return free.front();
}

/// Collectives that begin late, now more and now less, and in each group by itself.
class LateGroup : public RankGroup {
 public:
  LateGroup(std::unique_ptr<RankGroup> group, std::function<double()> delay)
      : group_(std::move(group)), delay_(std::move(delay)) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::unique_ptr<Exchange> all_reduce(const at::Tensor& tensor) override {
    return group_->all_reduce(tensor);
  }
  std::unique_ptr<Exchange> all_gather(const at::Tensor& all, const at::Tensor& own) override {
    return group_->all_gather(all, own);
  }
  std::unique_ptr<Exchange> reduce_scatter(const at::Tensor& own, const at::Tensor& all) override {
    return group_->reduce_scatter(own, all);
  }
  std::unique_ptr<Exchange> broadcast(const at::Tensor& tensor, int root) override {
    sleep_for(delay_());
    return group_->broadcast(tensor, root);
  }

 private:
  std::unique_ptr<RankGroup> group_;
  std::function<double()> delay_;
};

class LateRanks final : public Ranks {
 public:
  LateRanks(Ranks& ranks, double mean) : ranks_(ranks), delay_(random_delays(mean)) {
    for (int i = 0; i < 7919 * ranks.rank(); ++i) delay_();  // others on each rank
  }
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  int local_rank() const override { return ranks_.local_rank(); }
  int local_size() const override { return ranks_.local_size(); }
  std::unique_ptr<Exchange> all_reduce(const at::Tensor& tensor) override {
    return ranks_.all_reduce(tensor);
  }
  std::unique_ptr<Exchange> all_gather(const at::Tensor& all, const at::Tensor& own) override {
    return ranks_.all_gather(all, own);
  }
  std::unique_ptr<Exchange> reduce_scatter(const at::Tensor& own, const at::Tensor& all) override {
    return ranks_.reduce_scatter(own, all);
  }
  std::unique_ptr<Exchange> broadcast(const at::Tensor& tensor, int root) override {
    return ranks_.broadcast(tensor, root);
  }
  std::unique_ptr<RankGroup> group(const std::vector<int>& ranks) override {
    std::unique_ptr<RankGroup> group = ranks_.group(ranks);
    return group ? std::make_unique<LateGroup>(std::move(group), delay_) : nullptr;
  }

 private:
  Ranks& ranks_;
  std::function<double()> delay_;
};

using Made = std::unique_ptr<GraphNetwork> (*)();

/// What a rank ends with: weights, running statistics, buffers of the optimizer.
struct End {
  std::vector<at::Tensor> weights, statistics, buffers;
  std::vector<double> losses;

  explicit End(const Yard& yard)
      : weights(yard.weights()), buffers(yard.buffers()), losses(yard.bench->losses) {
    for (const NamedTensor& each : yard.network->buffers()) statistics.push_back(each.tensor.clone());
  }
  double from(const End& other) const {
    return std::max({distance(weights, other.weights), distance(statistics, other.statistics),
                     distance(buffers, other.buffers)});
  }
};

/// Trains on so many ranks; gives what they end with, which is the same on all, and the losses of the last.
template <class Body>
End on_stages(int count, Made made, const Body& body, double delay = 0.0) {
  std::map<int, End> ends;
  std::mutex mutex;
  testing::on_ranks(count, [&](Ranks& ranks) {
    LateRanks late(ranks, delay);
    Yard yard(made(), momentum);
    body(late, yard);
    const std::lock_guard lock(mutex);
    ends.emplace(ranks.rank(), End(yard));
  });
  for (const auto& [rank, end] : ends) {
    CHECK(end.from(ends.at(0)) == 0.0);
    CHECK(end.losses.empty() == (rank + 1 < count));
  }
  return ends.at(count - 1);
}

std::unique_ptr<GraphNetwork> normalised_network() {
  return small_network(at::kDouble, true);
}

/// One weight in the first layer and in the last.
std::unique_ptr<GraphNetwork> tied_network() {
  GraphBuilder b(six_numbers(at::kDouble), 3);
  const ValueId shared = b.normal_parameter("shared", {6, 6}, 0.4);
  const std::map<std::string, Attribute, std::less<>> transposed = {{"transB", std::int64_t{1}}};
  const ValueId x = b.tanh(b.node("Gemm", "one", {b.input(), shared}, transposed));
  const ValueId y = b.node("Gemm", "other", {x, shared}, transposed);
  return network_of(b.finish(b.slice(y, 1, 0, 3)), at::kDouble);
}

/// Of three layers, with what goes past the second one to the last: what the first makes, and the input.
std::unique_ptr<GraphNetwork> skipping_network() {
  GraphBuilder b(six_numbers(at::kDouble), 3);
  const ValueId first = b.tanh(b.linear(b.input(), "fc1", 6));
  const ValueId last = b.linear(b.tanh(b.linear(first, "fc2", 6)), "fc3", 6);
  return network_of(b.finish(b.slice(b.add(b.mul(last, first), b.input()), 1, 0, 3)), at::kDouble);
}

/// A step of all batches, each cut in so many parts, in turn.
void plain_step(Yard& yard, std::span<Batch> data, std::int64_t step, std::int64_t parts) {
  std::vector<Batch> cut;
  for (const Batch& each : data)
    for (std::int64_t p = 0; p < parts; ++p) {
      const std::int64_t first = each.size() * p / parts, count = each.size() * (p + 1) / parts - first;
      Batch& part = cut.emplace_back();
      part.inputs = {each.input().narrow(0, first, count)};
      part.target = each.target.narrow(0, first, count);
      part.indices.resize(static_cast<std::size_t>(count));
      part.weight = static_cast<double>(count);
    }
  StepWork work = work_of(cut, step);
  do
    for (std::size_t i = 0; i < cut.size(); ++i) yard.bench->backward(work, i);
  while (yard.bench->update({}) == Update::repeat);
}

}  // namespace

TEST_CASE("wavelet: stages take passes as the card's list schedule does", "[wavelet][wavelet-stages]") {
  const std::map<std::pair<int, std::int64_t>, int> card = {
      {{2, 1}, 6},  {{2, 2}, 9},  {{2, 4}, 15}, {{2, 8}, 27}, {{4, 1}, 12}, {{4, 2}, 15},
      {{4, 4}, 21}, {{4, 8}, 33}, {{8, 1}, 24}, {{8, 2}, 27}, {{8, 4}, 33}, {{8, 8}, 45}};
  for (const auto& [how, units] : card) {
    INFO(how.first << " stages, " << how.second << " waves");
    CHECK(makespan(how.first, how.second) == units);
  }
}

TEST_CASE("wavelet: a round of waves through stages is one batch", "[wavelet][wavelet-stages]") {
  const auto [ranks, waves, made] = GENERATE(table<int, std::int64_t, Made>({{2, 1, normalised_network},
                                                                             {2, 2, normalised_network},
                                                                             {2, 4, normalised_network},
                                                                             {2, 4, tied_network},
                                                                             {3, 1, small_convolution},
                                                                             {3, 3, small_convolution},
                                                                             {3, 4, skipping_network}}));
  INFO(ranks << " ranks, " << waves << " waves");
  const std::vector<Batch> data = batches(100, 9);
  const auto of_step = [&](std::int64_t step) {
    std::vector<Batch> own(data.begin() + 2 * step, data.begin() + 2 * step + 2);
    if (step % 4 == 1) own[0].weight = 0.0;  // nobody takes it
    return own;
  };
  const End found = on_stages(ranks, made, [&](Ranks& all, Yard& yard) {
    yard.bench->outcome = mixed_outcomes();
    Round round(yard.host, all, *yard.bench, {.waves = waves});
    for (std::int64_t step = 0; step < 50; ++step) {
      std::vector<Batch> own = of_step(step);
      StepWork work = work_of(own, step);
      round.step(work);
      CHECK_FALSE(round.in_flight());
    }
  });
  Yard plain(made(), momentum);
  plain.bench->outcome = mixed_outcomes();
  for (std::int64_t step = 0; step < 50; ++step) {
    std::vector<Batch> own = of_step(step);
    plain_step(plain, std::span(own).subspan(own[0].weight == 0.0 ? 1 : 0), step, waves);
  }
  CHECK(found.from(End(plain)) < 1e-12);
  CHECK(std::ssize(found.losses) == (100 - 13) * waves);
}

TEST_CASE("wavelet: rolling waves are the same reads and updates in turn, so many updates behind",
          "[wavelet][wavelet-stages]") {
  const auto [ranks, waves, made] = GENERATE(table<int, int, Made>({{2, 1, normalised_network},
                                                                    {2, 2, normalised_network},
                                                                    {2, 4, normalised_network},
                                                                    {2, 2, tied_network},
                                                                    {3, 4, small_convolution},
                                                                    {3, 2, skipping_network}}));
  const bool mixed = GENERATE(false, true);
  INFO(ranks << " ranks, " << waves << " waves"
             << (mixed ? ", some updates skipped or repeated" : ", all updates done"));
  constexpr int steps = 40, pause = 24;
  std::vector<Batch> data = batches(steps, 4);
  const auto outcome = [&] { return mixed ? mixed_outcomes() : [] { return Update::done; }; };
  std::int64_t most_behind = 0;
  const auto of_step = [](std::vector<Batch>& from, int step) {
    return work_of(std::span(from).subspan(static_cast<std::size_t>(step), 1), step);
  };
  const End found = on_stages(
      ranks, made,
      [&](Ranks& all, Yard& yard) {
        yard.bench->outcome = outcome();
        std::vector<Batch> own = data;
        Rolling rolling(yard.host, all, *yard.bench, {.waves = waves});
        for (int step = 0; step < steps; ++step) {
          StepWork work = of_step(own, step);
          rolling.step(work);
          CHECK(rolling.in_flight());
          if (step == pause) rolling.settle();
        }
        rolling.settle();
        CHECK_FALSE(rolling.in_flight());
        if (all.rank() == 0) most_behind = rolling.most_behind();
      },
      1e-4);
  CHECK(most_behind == waves - 1);
  CHECK(found.losses.size() == steps);

  // Without threads, by the whole network: the gradients of a step, and its update when `waves` later ones are read.
  Yard plain(made(), momentum);
  plain.bench->outcome = outcome();
  std::deque<std::pair<int, std::vector<at::Tensor>>> waiting;
  const auto read = [&](int step) {
    StepWork work = of_step(data, step);
    plain.bench->backward(work, 0);
    std::vector<at::Tensor> gradients;
    for (const NamedTensor& each : plain.network->parameters())
      gradients.push_back(std::exchange(each.tensor.mutable_grad(), at::Tensor()));
    return gradients;
  };
  const auto apply = [&] {
    auto [step, gradients] = std::move(waiting.front());
    waiting.pop_front();
    for (;;) {
      for (std::size_t i = 0; i < gradients.size(); ++i)
        plain.network->parameters()[i].tensor.mutable_grad() = gradients[i];
      if (plain.bench->update({}) != Update::repeat) return;
      gradients = read(step);
    }
  };
  for (int step = 0; step < steps; ++step) {
    if (std::ssize(waiting) == waves) apply();
    waiting.emplace_back(step, read(step));
    while (step == pause && !waiting.empty()) apply();
  }
  while (!waiting.empty()) apply();
  CHECK(found.from(End(plain)) <= (made == tied_network ? 1e-12 : 0.0));
}

TEST_CASE("wavelet: stages that are late, now one and now another, lock nobody up and change no bit",
          "[wavelet][wavelet-stages]") {
  const bool rolls = GENERATE(false, true);
  const auto [ranks, made] = GENERATE(table<int, Made>({{2, normalised_network}, {3, small_convolution}}));
  const int steps = ranks == 2 ? 300 : 100;
  const auto run = [&](double delay, int count) {
    return on_stages(
        ranks, made,
        [&](Ranks& all, Yard& yard) {
          const StagedOptions options = {.waves = 4};
          std::unique_ptr<wavelet::Rule> rule;
          if (rolls)
            rule = std::make_unique<Rolling>(yard.host, all, *yard.bench, options);
          else
            rule = std::make_unique<Round>(yard.host, all, *yard.bench, options);
          std::vector<Batch> data = batches(7, 8);
          for (int step = 0; step < count; ++step) {
            StepWork work = work_of(std::span(data).subspan(static_cast<std::size_t>(step % 7), 1), step);
            rule->step(work);
            if (step % 30 == 11) rule->settle();
          }
          rule->settle();
        },
        delay);
  };
  CHECK(run(2e-5, steps).from(run(0.0, steps)) == 0.0);
}

TEST_CASE("wavelet: what a stage throws comes out, the others hear of it, and waves in flight hold nobody up",
          "[wavelet][wavelet-stages]") {
  const bool rolls = GENERATE(false, true);
  std::string heard;
  const auto body = [&](Ranks& ranks) {
    Yard yard(small_network(), momentum);
    std::vector<Batch> data = batches(3, 4);
    std::unique_ptr<wavelet::Rule> rule;
    if (rolls)
      rule = std::make_unique<Rolling>(yard.host, ranks, *yard.bench, StagedOptions{.waves = 2});
    else
      rule = std::make_unique<Round>(yard.host, ranks, *yard.bench, StagedOptions{.waves = 2});
    if (ranks.rank() == 1) data[2].target = at::zeros({4, 5}, at::kDouble);
    try {
      for (int step = 0; step < 9; ++step) {
        StepWork work = work_of(std::span(data).subspan(static_cast<std::size_t>(step % 3), 1), step);
        rule->step(work);
      }
    } catch (const DistributedError& error) {
      heard = error.what();
    }
  };
  CHECK_THROWS_WITH(testing::on_ranks(2, body), Contains("must match the size"));
  CHECK_THAT(heard, Contains("rank 1 ended") && Contains("must match the size"));
}

}  // namespace wavelet_stages_tests
