// The compressors on ranks that are threads: against what one process computes, and what goes over the wire
// against what the kernel counts.
#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>

#include <ATen/ATen.h>

#include <trainyard/compressor.hpp>
#include <trainyard/context.hpp>
#include <trainyard/testing/compressor.hpp>

#include "core/engine/distributed/reduction.hpp"
#include "support/plugin.hpp"
#include "support/ranks.hpp"

#include <catch2/catch.hpp>

namespace compressors_tests {

using namespace trainyard;
using test::on_ranks;
using test::table;

namespace {

/// Keeps the numbers that a compressor reports.
class Listening : public test::QuietHost {
 public:
  void metric(std::string_view name, double value) override { metrics[std::string(name)] += value; }
  std::map<std::string, double> metrics;
};

constexpr RunScale scale{
    .steps_per_epoch = 10, .samples_per_epoch = 80, .samples_per_step = 8, .total_steps = 1000};

/// The optimizer has taken a step.
struct Taken final : StepContext {
  Taken() { event_ = Event::after_step; }
};

/// A compressor of a rank, open for buckets of one matrix each.
struct Rank {
  Rank(distributed::World& world, const std::string& name, const Table& options,
       const std::vector<std::vector<std::int64_t>>& shapes)
      : ranks(world) {
    for (const std::vector<std::int64_t>& shape : shapes) {
      std::int64_t elements = 1;
      for (const std::int64_t length : shape) elements *= length;
      plans.push_back({elements, {{"weight", 0, shape}}});
    }
    static std::mutex making;
    const std::lock_guard lock(making);
    const PluginEntry& entry = test::entry("compressor", name);
    manifest = manifest_of(entry);
    const PluginEntry::Instance instance = make_plugin(entry, manifest, options);
    plugin.reset(dynamic_cast<Compressor*>(instance.plugin));
    self = instance.self;
    plugin->set_host(host);
  }
  void open() { plugin->open(ranks, plans, scale); }
  /// All buckets leave, then all are waited for; then the optimizer takes the step, or does not.
  void reduce(const std::vector<at::Tensor>& buckets, std::int64_t step, bool taken = true) {
    std::vector<std::unique_ptr<Exchange>> exchanges;
    for (std::size_t i = 0; i < buckets.size(); ++i) exchanges.push_back(plugin->reduce(i, buckets[i], step));
    for (const auto& exchange : exchanges) exchange->wait();
    if (taken) take();
  }
  void take() {
    Taken context;
    for (const HookSpec& hook : manifest.hooks)
      if (hook.event == Event::after_step) hook.call(self, context);
  }
  State saved() const {
    State state{.owner = "distributed.compressor", .version = "1.0.0", .scalars = {}, .tensors = {}};
    StateWriter writer(state);
    plugin->save(writer);
    for (auto& [name, tensor] : state.tensors) tensor = tensor.clone();
    return state;
  }

  distributed::World& ranks;
  Listening host;
  std::vector<BucketPlan> plans;
  ManifestData manifest;
  std::unique_ptr<Compressor> plugin;
  void* self = nullptr;
};

/// What a rank has for a bucket in a step: heavy tails, and another scale for every rank.
at::Tensor gradient(int rank, std::size_t bucket, std::int64_t step, std::int64_t elements) {
  at::Tensor flat = at::empty({elements});
  fill_normal(flat,
              RandomStream(7, "gradient/" + std::to_string(bucket), static_cast<std::uint64_t>(step),
                           static_cast<std::uint32_t>(rank)),
              0.0, 1.0);
  return flat * flat.abs() * (1.0 + 0.1 * rank);
}

using Vector = std::vector<double>;

/// Largest difference, over the largest element.
double apart(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).abs().max() / b.to(at::kDouble).abs().max()).item<double>();
}

/// What compressors are told apart by: the fewest options that make them compress 1000 elements.
std::vector<std::pair<std::string, Table>> all_of_them() {
  return {{"fp16", table({})},
          {"bf16", table({})},
          {"randomk", table({{"density", 0.1}})},
          {"topk", table({{"density", 0.1}})},
          {"topk", table({{"density", 0.1}, {"value_dtype", std::string("fp16")}})},
          {"topk", table({{"density", 0.1}, {"value_dtype", std::string("bf16")}})},
          {"mstopk", table({{"density", 0.1}})},
          {"mstopk", table({{"density", 0.1}, {"method", std::string("bitsearch")}})},
          {"mstopk", table({{"density", 0.1}, {"method", std::string("exact")}, {"error_feedback", false}})},
          {"dgc", table({{"density", 0.1}, {"warmup_epochs", std::int64_t{1}}, {"clip", 50.0}})},
          {"powersgd", table({{"rank", std::int64_t{2}}})},
          {"powersgd", table({{"warm_start", false}, {"error_feedback", false}})},
          {"hitopk", table({{"density", 0.1}, {"auto_dense", std::string("never")}})}};
}

}  // namespace

TEST_CASE(
    "What compressors sum is the same on all ranks, to the bit, and goes on to the same bits from a state") {
  for (const auto& [name, options] : all_of_them())
    for (const int size : {2, 4}) {
      std::vector<std::string> digests(static_cast<std::size_t>(size)), resumed = digests;
      std::vector<State> states(digests.size());
      on_ranks(
          size,
          [&, &name = name, &options = options](distributed::World& world) {
            const auto self = static_cast<std::size_t>(world.rank());
            const std::vector<std::vector<std::int64_t>> shapes = {{40, 25}, {33, 31}};
            const auto run = [&](Rank& rank, std::int64_t from) {
              State sums;
              for (std::int64_t step = from; step < 12; ++step) {
                const std::vector<at::Tensor> buckets = {gradient(world.rank(), 0, step, 1000),
                                                         gradient(world.rank(), 1, step, 1023)};
                rank.reduce(buckets, step);
                for (std::size_t i = 0; i < 2; ++i)
                  if (step >= 6) sums.tensors[std::to_string(step) + "/" + std::to_string(i)] = buckets[i];
                if (step == 5) states[self] = rank.saved();
              }
              return digest(sums);
            };
            Rank first(world, name, options, shapes), second(world, name, options, shapes);
            first.open();
            digests[self] = run(first, 0);
            world.gather("saved");
            second.open();
            second.plugin->load_all(states);
            resumed[self] = run(second, 6);
          },
          size == 4 ? 2 : 0);
      INFO(name << " on " << size << " ranks");
      for (const std::string& each : digests) CHECK(each == digests.front());
      for (const std::string& each : resumed) CHECK(each == digests.front());
    }
}

TEST_CASE("`plugins check` finds nothing wrong with the sums and the states of a compressor") {
  for (const auto& [name, options] : all_of_them()) {
    INFO(name);
    CHECK(testing::wrong_sums(test::shipped_file("compressor", name), options) == "");
    CHECK(testing::wrong_states(test::shipped_file("compressor", name), options) == "");
  }
}

TEST_CASE("A step that is not taken leaves no trace, whatever its gradients were") {
  for (const auto& [name, options] : all_of_them())
    on_ranks(2, [&, &name = name, &options = options](distributed::World& world) {
      Rank plain(world, name, options, {{40, 25}, {33, 31}}),
          troubled(world, name, options, {{40, 25}, {33, 31}});
      plain.open();
      troubled.open();
      bool same = true;
      const auto buckets = [&](std::int64_t step) {
        return std::vector{gradient(world.rank(), 0, step, 1000), gradient(world.rank(), 1, step, 1023)};
      };
      for (std::int64_t step = 0; step < 9; ++step) {
        if (step == 3) {  // an overflow of half precision, on one rank
          std::vector<at::Tensor> lost = buckets(100);
          if (world.rank() == 1) lost[0].narrow(0, 10, 5).fill_(std::numeric_limits<float>::infinity());
          troubled.reduce(lost, step, false);
        }
        if (step == 6) troubled.reduce(buckets(step), step, false);  // repeated
        const std::vector<at::Tensor> expected = buckets(step), found = buckets(step);
        plain.reduce(expected, step);
        troubled.reduce(found, step);
        for (std::size_t i = 0; i < found.size(); ++i) same = same && at::equal(found[i], expected[i]);
      }
      INFO(name);
      CHECK_HERE(same);
      CHECK_HERE(digest(troubled.saved()) == digest(plain.saved()));
    });
}

TEST_CASE("A compressor gets gradients without the loss scale, and the optimizer with it") {
  std::vector<at::Tensor> summed(2);
  std::vector<State> kept(2);
  for (const double loss_scale : {1.0, 4096.0})
    on_ranks(2, [&](distributed::World& world) {
      Rank rank(world, "topk", table({{"density", 0.1}, {"min_compress_elements", std::int64_t{1}}}), {});
      const at::Tensor weight = at::zeros({40, 25}).set_requires_grad(true);
      const std::vector<NamedTensor> parameters = {{"weight", weight}};
      distributed::Layout layout = distributed::make_layout(parameters, 1 << 20, rank.plugin.get());
      CHECK_HERE(layout.buckets.front().compressed);
      rank.plans = {layout.buckets.front().plan};
      rank.open();
      distributed::Reduction reduction(world, parameters, std::move(layout), rank.plugin.get());
      // The scale falls between the steps, as after an overflow.
      for (std::int64_t step = 0; step < 3; ++step) {
        const double scale = step == 0 ? loss_scale : loss_scale / (loss_scale > 1.0 ? 8.0 : 1.0);
        reduction.start(step, scale);
        weight.mutable_grad() = gradient(world.rank(), 0, step, 1000).view({40, 25}) * scale;
        reduction.finish({.weight = 1.0}, 1.0);
        weight.mutable_grad().div_(scale);
        rank.take();
      }
      if (world.rank() != 0) return;
      summed[loss_scale > 1.0] = weight.grad().clone();
      kept[loss_scale > 1.0] = rank.saved();
    });
  CHECK(at::equal(summed[0], summed[1]));
  CHECK(digest(kept[0]) == digest(kept[1]));
}

TEST_CASE("randomk without error feedback is unbiased, and draws other elements at every step") {
  on_ranks(2, [](distributed::World& world) {
    Rank rank(world, "randomk", table({{"density", 0.1}, {"error_feedback", false}}), {{1000}});
    rank.open();
    at::Tensor drawn = at::zeros({1000});
    for (std::int64_t step = 0; step < 60; ++step) {
      const at::Tensor bucket = gradient(world.rank(), 0, step, 1000);
      const at::Tensor sum = gradient(0, 0, step, 1000) + gradient(1, 0, step, 1000);
      rank.reduce({bucket}, step);
      const at::Tensor sent = bucket != 0;
      CHECK_HERE(sent.sum().item<std::int64_t>() == 100);
      CHECK_HERE(at::allclose(bucket, sum * 10.0 * sent, 1e-5, 1e-6));
      drawn += sent;
    }
    // Of 60 draws each element is in 6, give or take 2.3.
    CHECK_HERE(drawn.max().item<float>() < 20.0F);
    CHECK_HERE((drawn == 0).sum().item<std::int64_t>() < 15);
  });
}

TEST_CASE("dgc's clip is of a rank's bucket: the norm over the root of the ranks") {
  on_ranks(4, [](distributed::World& world) {
    Rank rank(world, "dgc", table({{"density", 1.0}, {"momentum", 0.0}, {"clip", 3.0}}), {{1000}});
    rank.open();
    const at::Tensor bucket = gradient(world.rank(), 0, 0, 1000);
    at::Tensor expected = at::zeros({1000}, at::kDouble);
    for (int other = 0; other < 4; ++other) {
      const at::Tensor own = gradient(other, 0, 0, 1000).to(at::kDouble);
      expected += own * (1.5 / own.norm());  // 3 / sqrt(4), and each is larger than that
    }
    rank.reduce({bucket}, 0);
    CHECK_HERE(apart(bucket, expected) < 1e-5);
    const at::Tensor small = at::full({1000}, 0.01);  // of norm 0.3
    rank.reduce({small}, 1);
    CHECK_HERE(at::allclose(small, at::full({1000}, 0.04)));
  });
}

TEST_CASE("hitopk that turns dense sends what it had kept back, once") {
  on_ranks(
      4,
      [](distributed::World& world) {
        const auto of = [](double density) { return table({{"density", density}}); };
        Rank sparse(world, "hitopk", of(0.05), {{1000}}), dense(world, "hitopk", of(0.6), {{1000}});
        sparse.open();
        dense.open();
        at::Tensor all = at::zeros({1000}, at::kDouble);
        const auto sum = [&](Rank& rank, std::int64_t step) {
          const at::Tensor bucket = gradient(world.rank(), 0, step, 1000);
          for (int other = 0; other < 4; ++other) all += gradient(other, 0, step, 1000).to(at::kDouble);
          rank.reduce({bucket}, step);
          all -= bucket.to(at::kDouble);
        };
        for (std::int64_t step = 0; step < 5; ++step) sum(sparse, step);
        CHECK_HERE(all.abs().max().item<double>() > 1.0);
        const State kept = sparse.saved();
        dense.plugin->load(StateReader(kept));
        for (std::int64_t step = 5; step < 7; ++step) {
          sum(dense, step);
          CHECK_HERE(all.abs().max().item<double>() < 1e-4);
        }
      },
      2);
}

TEST_CASE("At a density of 1, and before their start, compressors give the sum") {
  struct Case {
    const char* name;
    Table options;
    double bar;
  };
  const auto late = [](Table options) {
    options.set("start", Value(std::string("5ba")));
    return options;
  };
  std::vector<Case> cases;
  for (const auto& [name, options] : all_of_them())
    if (name != "dgc") cases.push_back({name.c_str(), late(options), 1e-6});
  for (const char* name : {"topk", "mstopk", "randomk", "hitopk"})
    cases.push_back({name, table({{"density", 1.0}, {"auto_dense", std::string("never")}}), 1e-6});
  cases.push_back({"fp16", {}, 2e-3});
  cases.push_back({"bf16", {}, 2e-2});
  for (const Case& each : cases)
    on_ranks(
        4,
        [&](distributed::World& world) {
          Rank rank(world, each.name, each.options, {{40, 25}});
          rank.open();
          for (std::int64_t step = 0; step < 5; ++step) {
            const at::Tensor bucket = gradient(world.rank(), 0, step, 1000);
            at::Tensor sum = at::zeros({1000}, at::kDouble);
            for (int other = 0; other < 4; ++other) sum += gradient(other, 0, step, 1000).to(at::kDouble);
            rank.reduce({bucket}, step);
            CHECK_HERE(apart(bucket, sum) <= each.bar);
          }
        },
        2);
}

namespace {

/// Of `gradient`, what no sum of floats rounds: multiples of 1/64, of moderate size.
at::Tensor exact_gradient(int rank, std::int64_t step, std::int64_t elements) {
  return (gradient(rank, 0, step, elements) * 64.0).round().clamp(-4096, 4096) / 64.0;
}

/// sum of what came + what is kept back - sum of the gradients, of the largest element, over the largest sum.
double lost(const std::string& name, const Table& options, int steps, bool exact) {
  std::mutex adding;
  at::Tensor kept = at::zeros({1000}, at::kDouble), given = kept.clone(), came = kept.clone();
  on_ranks(
      4,
      [&](distributed::World& world) {
        Rank rank(world, name, options, {{40, 25}});
        rank.open();
        at::Tensor own = at::zeros({1000}, at::kDouble), all = own.clone();
        for (std::int64_t step = 0; step < steps; ++step) {
          const at::Tensor bucket =
              exact ? exact_gradient(world.rank(), step, 1000) : gradient(world.rank(), 0, step, 1000);
          own += bucket.to(at::kDouble);
          rank.reduce({bucket}, step);
          all += bucket.to(at::kDouble);
        }
        const at::Tensor left = rank.saved().tensors.at("residual/0").to(at::kDouble);
        const std::lock_guard lock(adding);
        given += own;
        came = all;  // the same on all ranks
        // of a shard, or of all
        kept.narrow(0, left.numel() == 1000 ? 0 : world.local_rank() * left.numel(), left.numel()) += left;
      },
      2);
  return apart(came + kept, given);
}

}  // namespace

TEST_CASE("Nothing is lost: what came and what is kept back are the sum of the gradients") {
  const int steps = std::getenv("TRAINYARD_LONG") != nullptr ? 1000 : 100;
  const std::vector<std::pair<std::string, Table>> cases = {
      {"topk", table({{"density", 0.05}})},
      {"topk", table({{"density", 0.05}, {"value_dtype", std::string("fp16")}})},
      {"mstopk", table({{"density", 0.05}})},
      {"mstopk", table({{"density", 0.05}, {"value_dtype", std::string("bf16")}})},
      {"randomk", table({{"density", 0.05}})},
      {"dgc", table({{"density", 0.05}, {"momentum", 0.0}, {"warmup_epochs", std::int64_t{2}}})},
      {"hitopk", table({{"density", 0.05}, {"auto_dense", std::string("never")}})},
      {"hitopk", table({{"density", 0.05}, {"auto_dense", std::string("measured")}})}};
  for (const auto& [name, options] : cases) {
    // Where no sum of floats is rounded, nothing at all; else what the machine rounds in g + e and in the sum.
    const double exact = lost(name, options, steps, true), rounded = lost(name, options, steps, false);
    WARN(name << ", " << steps << " steps: " << exact << "; of any gradients " << rounded);
    CHECK(exact <= 1e-12);
    CHECK(rounded <= 1e-6);
  }
  CHECK(lost("powersgd", table({{"rank", std::int64_t{2}}}), steps, false) <= 2e-6);
}

namespace {

/// Indices of the k largest, by a sort; equal ones lowest index first.
std::vector<std::size_t> largest(const Vector& x, std::size_t k) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return std::abs(x[a]) > std::abs(x[b]); });
  order.resize(k);
  return order;
}

using Floats = std::vector<float>;

Floats floats_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), tensor.const_data_ptr<float>() + tensor.numel()};
}

/// What is taken out of `acc`: zeros elsewhere.
Floats take(Floats& acc, std::size_t k) {
  Floats sent(acc.size());
  for (const std::size_t i : largest({acc.begin(), acc.end()}, k)) sent[i] = std::exchange(acc[i], 0.0F);
  return sent;
}

void add(Floats& into, const Floats& other) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] += other[i];
}

}  // namespace

TEST_CASE("topk and the exact ways of mstopk send what a sort finds, to the bit") {
  for (const auto& [name, options] : std::vector<std::pair<std::string, Table>>{
           {"topk", table({{"density", 0.037}})},
           {"mstopk", table({{"density", 0.037}, {"method", std::string("radix")}})},
           {"mstopk", table({{"density", 0.037}, {"method", std::string("bitsearch")}})},
           {"mstopk", table({{"density", 0.037}})}})
    on_ranks(3, [&, &name = name, &options = options](distributed::World& world) {
      Rank rank(world, name, options, {{999}});
      rank.open();
      std::vector<Floats> residuals(3, Floats(999));
      for (std::int64_t step = 0; step < 10; ++step) {
        Floats expected(999);
        for (int other = 0; other < 3; ++other) {
          Floats& acc = residuals[static_cast<std::size_t>(other)];
          add(acc, floats_of(gradient(other, 0, step, 999)));
          add(expected, take(acc, 36));
        }
        const at::Tensor bucket = gradient(world.rank(), 0, step, 999);
        rank.reduce({bucket}, step);
        CHECK_HERE(floats_of(bucket) == expected);
      }
      CHECK_HERE(floats_of(rank.saved().tensors.at("residual/0")) ==
                 residuals[static_cast<std::size_t>(world.rank())]);
    });
}

TEST_CASE("dgc sends sums of momentum, more of them while it warms up") {
  on_ranks(2, [&](distributed::World& world) {
    // 10 steps an epoch: 0.001 ^ (1 / 3), ^ (2 / 3), then 0.001
    Rank rank(world, "dgc",
              table({{"density", 0.001},
                     {"momentum", 0.5},
                     {"warmup_epochs", std::int64_t{2}},
                     {"start", std::string("3ba")}}),
              {{2000}});
    rank.open();
    std::vector<Floats> us(2, Floats(2000)), vs = us;
    for (std::int64_t step = 0; step < 30; ++step) {
      const std::size_t k = step < 13 ? 200 : step < 23 ? 20 : 2;
      Floats expected(2000);
      for (std::size_t other = 0; other < 2; ++other) {
        Floats &u = us[other], &v = vs[other];
        for (float& each : u) each *= 0.5F;
        add(u, floats_of(gradient(static_cast<int>(other), 0, step, 2000)));
        if (step < 3) {
          add(expected, u);
          continue;
        }
        add(v, u);
        for (const std::size_t i : largest({v.begin(), v.end()}, k)) {
          expected[i] += std::exchange(v[i], 0.0F);
          u[i] = 0.0F;
        }
      }
      const at::Tensor bucket = gradient(world.rank(), 0, step, 2000);
      rank.reduce({bucket}, step);
      CHECK_HERE(floats_of(bucket) == expected);
    }
  });
}

TEST_CASE("hitopk is what one process computes step by step, to the bit") {
  const struct { int nodes, local; } layouts[] = {{2, 2}, {4, 1}, {1, 4}};
  for (const auto& layout : layouts)
    for (const std::int64_t elements : {1000, 1003})  // the second is padded
      on_ranks(
          4,
          [&](distributed::World& world) {
            Rank rank(world, "hitopk",
                      table({{"density", 0.05},
                             {"method", std::string("exact")},
                             {"auto_dense", std::string("never")}}),
                      {{elements}});
            rank.open();
            const auto n = static_cast<std::size_t>(layout.local), m = static_cast<std::size_t>(layout.nodes);
            const std::size_t d = static_cast<std::size_t>(elements), length = (d + n - 1) / n;
            const auto k = static_cast<std::size_t>(0.05 * static_cast<double>(d) / static_cast<double>(n));
            std::vector<Floats> residuals(4, Floats(length));  // by rank
            for (std::int64_t step = 0; step < 10; ++step) {
              Floats expected(length * n);
              for (std::size_t place = 0; place < n; ++place) {
                Floats shard(length);
                for (std::size_t node = 0; node < m; ++node) {
                  Floats& acc = residuals[node * n + place];
                  Floats sum(length);  // step 1; of multiples of 1/64 in whatever order
                  for (std::size_t local = 0; local < n; ++local) {
                    Floats part =
                        floats_of(exact_gradient(static_cast<int>(node * n + local), step, elements));
                    part.resize(length * n);
                    add(sum, Floats(part.begin() + static_cast<std::ptrdiff_t>(place * length),
                                    part.begin() + static_cast<std::ptrdiff_t>((place + 1) * length)));
                  }
                  add(acc, sum);             // step 2
                  add(shard, take(acc, k));  // steps 3 and 4
                }
                std::copy(shard.begin(), shard.end(),
                          expected.begin() + static_cast<std::ptrdiff_t>(place * length));
              }
              expected.resize(d);
              const at::Tensor bucket = exact_gradient(world.rank(), step, elements);
              rank.reduce({bucket}, step);
              CHECK_HERE(floats_of(bucket) == expected);
            }
            CHECK_HERE(floats_of(rank.saved().tensors.at("residual/0")) ==
                       residuals[static_cast<std::size_t>(world.rank())]);
          },
          layout.local);
}

namespace {

/// In doubles, of dense matrices, by a QR decomposition: what powersgd sends in a step, of warm starts from `q`.
at::Tensor powersgd_step(std::vector<at::Tensor>& residuals, const std::vector<at::Tensor>& gradients,
                         at::Tensor& q) {
  at::Tensor p = at::zeros({gradients[0].size(0), q.size(1)}, at::kDouble), next = at::zeros_like(q);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    residuals[i] = residuals[i] + gradients[i];
    p = p + residuals[i].matmul(q);
  }
  p = std::get<0>(at::linalg_qr(p));
  for (at::Tensor& each : residuals) {
    const at::Tensor own = each.t().matmul(p);
    each = each - p.matmul(own.t());
    next = next + own;
  }
  q = next;
  return p.matmul(q.t());
}

}  // namespace

TEST_CASE("powersgd is power iteration with error feedback, as computed densely in doubles") {
  for (const std::int64_t columns : {1, 3})
    on_ranks(2, [&](distributed::World& world) {
      Rank rank(world, "powersgd", table({{"rank", columns}}), {{30, 5, 6}});
      rank.open();
      at::Tensor q = rank.saved().tensors.at("q/0").view({30, columns}).to(at::kDouble);
      std::vector<at::Tensor> residuals(2, at::zeros({30, 30}, at::kDouble));
      for (std::int64_t step = 0; step < 12; ++step) {
        std::vector<at::Tensor> gradients;
        for (int other = 0; other < 2; ++other)
          gradients.push_back(gradient(other, 0, step, 900).view({30, 30}).to(at::kDouble));
        const at::Tensor expected = powersgd_step(residuals, gradients, q);
        const at::Tensor bucket = gradient(world.rank(), 0, step, 900);
        rank.reduce({bucket}, step);
        CHECK_HERE(apart(bucket.view({30, 30}), expected) < 1e-3);
      }
      CHECK_HERE(apart(rank.saved().tensors.at("residual/0").view({30, 30}),
                       residuals[static_cast<std::size_t>(world.rank())]) < 1e-3);
    });
}

TEST_CASE("powersgd sends a matrix of its rank whole, where one part is thousands of times smaller") {
  on_ranks(2, [&](distributed::World& world) {
    Rank rank(world, "powersgd", table({{"rank", std::int64_t{2}}}), {{60, 50}});
    rank.open();
    const auto product = [](std::int64_t step) {
      return gradient(0, 0, step, 60).unsqueeze(1).matmul(gradient(0, 1, step, 50).unsqueeze(0));
    };
    const at::Tensor matrix = product(0) + 3e-4 * product(1);
    const at::Tensor bucket = matrix.clone().view({-1});
    rank.reduce({bucket}, 0);
    CHECK_HERE(apart(bucket.view({60, 50}), matrix * 2) < 2e-6);
  });
}

TEST_CASE("powersgd takes matrices that get smaller, and comes back from gradients that are zero") {
  on_ranks(2, [&](distributed::World& world) {
    Rank rank(world, "powersgd",
              table({{"rank", std::int64_t{2}}, {"min_compress_elements", std::int64_t{1}}}), {{20, 20}});
    const auto takes = [&](std::vector<std::int64_t> shape) {
      return rank.plugin->takes({"w", at::empty(shape)});
    };
    CHECK_HERE(takes({20, 20}));
    CHECK_HERE(!takes({400}));
    CHECK_HERE(!takes({8, 8}));  // 2 (8 + 8) 2 = 64
    CHECK_HERE(takes({9, 9}));
    CHECK_HERE(takes({16, 3, 3, 3}));
    rank.open();
    rank.reduce({at::zeros({400})}, 0);
    const at::Tensor thin =
        at::arange(20, at::kFloat).unsqueeze(1).matmul(at::arange(20, at::kFloat).unsqueeze(0));
    at::Tensor sent = at::zeros({400});  // of rank 1: all of it, once Q has come back
    for (std::int64_t step = 1; step < 3; ++step) {
      const at::Tensor bucket = thin.clone().view({-1});
      rank.reduce({bucket}, step);
      sent += bucket;
    }
    CHECK_HERE(apart(sent.view({20, 20}), thin * 4) < 1e-4);
  });
}

TEST_CASE("A state of other ranks loses nothing of what was kept back") {
  const std::vector<std::pair<std::string, Table>> cases = {
      {"topk", table({{"density", 0.05}})},
      {"randomk", table({{"density", 0.05}})},
      {"dgc", table({{"density", 0.05}})},
      {"powersgd", table({})},
      {"hitopk", table({{"density", 0.05},
                        {"auto_dense", std::string("never")},
                        {"local_world_size", std::int64_t{2}}})}};
  const struct { int from, to; } ways[] = {{4, 2}, {2, 4}, {4, 4}};
  for (const auto& [name, options] : cases)
    for (const auto& way : ways) {
      const auto sum_of = [](const std::vector<State>& states) {
        at::Tensor sum = at::zeros({1003}, at::kDouble);
        for (std::size_t i = 0; i < states.size(); ++i) {
          const at::Tensor part = states[i].tensors.at("residual/0").to(at::kDouble);
          const std::int64_t begin =
              part.numel() == 1003 ? 0 : static_cast<std::int64_t>(i % 2) * part.numel();
          const std::int64_t count = std::min(part.numel(), 1003 - begin);
          sum.narrow(0, begin, count) += part.narrow(0, 0, count);
        }
        return sum;
      };
      std::vector<State> before(static_cast<std::size_t>(way.from)), after(static_cast<std::size_t>(way.to));
      on_ranks(way.from, [&, &name = name, &options = options](distributed::World& world) {
        Rank rank(world, name, options, {{17, 59}});
        rank.open();
        for (std::int64_t step = 0; step < 5; ++step)
          rank.reduce({gradient(world.rank(), 0, step, 1003)}, step);
        before[static_cast<std::size_t>(world.rank())] = rank.saved();
      });
      on_ranks(way.to, [&, &name = name, &options = options](distributed::World& world) {
        Rank rank(world, name, options, {{17, 59}});
        rank.open();
        rank.plugin->load_all(before);
        after[static_cast<std::size_t>(world.rank())] = rank.saved();
        world.gather("loaded");  // groups go when all are connected
      });
      INFO(name << " from " << way.from << " to " << way.to);
      CHECK(sum_of(before).abs().sum().item<double>() > 100.0);
      CHECK(apart(sum_of(after), sum_of(before)) <= (way.to >= way.from ? 0.0 : 1e-6));
      if (way.to == way.from)
        for (std::size_t i = 0; i < after.size(); ++i) CHECK(digest(after[i]) == digest(before[i]));
    }
}

namespace {

/// That this process has put on TCP, by the kernel's count; connections that are open.
double bytes_on_tcp() {
  double sum = 0.0;
  DIR* const folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (getsockopt(std::atoi(entry->d_name), IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
        length > offsetof(tcp_info, tcpi_bytes_sent))
      sum += static_cast<double>(info.tcpi_bytes_sent);
  }
  closedir(folder);
  return sum;
}

}  // namespace

TEST_CASE("What goes over the wire is what the formula says, and what the kernel counts") {
  constexpr double d = 400'000, k = 4000, ranks = 4, steps = 10;
  const std::string never = "never", half = "fp16";
  const struct {
    const char* name;
    Table options;
    double expected;         ///< a rank and step
    double collectives = 1;  ///< a step: each brings headers
    double beyond_the_ring = 0;
  } cases[] = {
      {"topk", table({}), 8 * k * (ranks - 1)},
      {"mstopk", table({{"value_dtype", half}}), 6 * k * (ranks - 1)},
      {"topk", table({{"start", std::string("1ep")}}), 2 * 4 * d * (ranks - 1) / ranks},
      {"fp16", table({}), 2 * 2 * d * (ranks - 1) / ranks},
      {"randomk", table({}), 2 * 4 * k * (ranks - 1) / ranks},
      {"powersgd", table({{"rank", std::int64_t{4}}}), 2 * 4 * 4 * (400 + 1000) * (ranks - 1) / ranks, 2},
      // Gloo sums all in a reduce-scatter. Of 2 nodes: a shard to the other of the node, twice, and (m - 1) k / n pairs to the other node
      {"hitopk", table({{"auto_dense", never}}), 2 * 4 * d / 2 + 8 * k / 2, 3, 4 * d / 2}};
  for (const auto& each : cases) {
    double counted = 0.0, on_tcp = 0.0;
    on_ranks(
        4,
        [&](distributed::World& world) {
          Rank rank(world, each.name, each.options, {{400, 1000}});
          rank.open();
          world.gather("open");
          if (world.rank() == 0) on_tcp = -bytes_on_tcp();
          world.gather("begin");
          for (std::int64_t step = 0; step < 10; ++step)
            rank.reduce({gradient(world.rank(), 0, step, 400'000)}, step);
          world.gather("done");
          if (world.rank() == 0) {
            on_tcp += bytes_on_tcp();
            counted = rank.host.metrics.at("wire_bytes") / steps;
            if (std::string(each.name) == "hitopk")
              CHECK_HERE(rank.host.metrics.at("wire_bytes_between_nodes") / steps == 8 * k / 2);
          }
          world.gather("measured");
        },
        2);
    on_tcp /= steps * ranks;
    WARN(each.name << ": " << counted << " bytes a rank and step, formula " << each.expected << ", kernel "
                   << on_tcp);
    CHECK(std::abs(counted / each.expected - 1.0) < 0.01);
    const double to_travel = each.expected + each.beyond_the_ring;
    CHECK(on_tcp > to_travel);
    CHECK(on_tcp < 1.01 * to_travel + 2500 * each.collectives);
  }
}

TEST_CASE("With error feedback descent arrives, without it it does not") {
  // The least squares of a target that each rank sees with an error of its own, which cancel out.
  const auto distance = [](const std::string& name, bool feedback) {
    double left = 0.0;
    on_ranks(2, [&](distributed::World& world) {
      Rank rank(world, name, table({{"density", 0.02}, {"error_feedback", feedback}}), {{1000}});
      rank.open();
      const at::Tensor target = gradient(0, 1, 0, 1000), error = gradient(0, 2, 0, 1000);
      at::Tensor x = at::zeros({1000});
      for (std::int64_t step = 0; step < 600; ++step) {
        const at::Tensor bucket = x - target + error * (world.rank() == 0 ? 1.0 : -1.0);
        rank.reduce({bucket}, step);
        x -= 0.005 * bucket;
      }
      if (world.rank() == 0) left = (x - target).norm().item<double>() / target.norm().item<double>();
    });
    return left;
  };
  for (const std::string name : {"topk", "mstopk"}) {
    const double with = distance(name, true), without = distance(name, false);
    WARN(name << ": " << with << " of the way is left with error feedback, " << without << " without");
    CHECK(with < 0.1);
    CHECK(without > 5.0 * with);
  }
}

TEST_CASE("hitopk sends all from a density of 1 / nodes on") {
  const struct {
    double density;
    const char* type;
    bool dense;
  } cases[] = {{0.49, "fp32", false}, {0.5, "fp32", true}, {0.6, "fp16", false}, {0.67, "fp16", true}};
  for (const auto& each : cases)
    on_ranks(
        4,
        [&](distributed::World& world) {
          Rank rank(world, "hitopk",
                    table({{"density", each.density}, {"value_dtype", std::string(each.type)}}), {{1000}});
          rank.open();
          CHECK_HERE(std::get<bool>(rank.saved().scalars.at("dense/0")) == each.dense);
          Rank measured(world, "hitopk",
                        table({{"density", each.density},
                               {"value_dtype", std::string(each.type)},
                               {"auto_dense", std::string("measured")}}),
                        {{1000}});
          measured.open();
          for (std::int64_t step = 0; step < 10; ++step) {
            CHECK_HERE(!measured.saved().scalars.contains("dense/0"));
            measured.reduce({gradient(world.rank(), 0, step, 1000)}, step);
          }
          const State chosen = measured.saved();
          const bool dense = std::get<bool>(chosen.scalars.at("dense/0"));
          for (const std::string& other : world.gather(dense ? "all" : "pairs"))
            CHECK_HERE(other == (dense ? "all" : "pairs"));
          // The choice goes on, but for another density.
          for (const bool same : {true, false}) {
            Rank next(world, "hitopk",
                      table({{"density", each.density - (same ? 0.0 : 0.1)},
                             {"value_dtype", std::string(each.type)},
                             {"auto_dense", std::string("measured")}}),
                      {{1000}});
            next.open();
            next.plugin->load(StateReader(chosen));
            CHECK_HERE(next.saved().scalars.contains("dense/0") == same);
          }
        },
        2);
}

TEST_CASE("What does not fit is refused, and what is not finite is not kept") {
  on_ranks(2, [&](distributed::World& world) {
    Rank rank(world, "hitopk", table({{"local_world_size", std::int64_t{3}}}), {{1000}});
    CHECK_THROWS_HERE(rank.open(), ConfigError);
    Rank timed(world, "topk", table({{"start", std::string("3s")}}), {{1000}});
    CHECK_THROWS_HERE(timed.open(), ConfigError);
    Rank small(world, "topk", {}, {{1000}}), large(world, "topk", {}, {{1001}});
    small.open();
    large.open();
    CHECK_THROWS_HERE(large.plugin->load_all(std::vector<State>{small.saved(), small.saved()}), DataError);
    Rank poisoned(world, "mstopk", table({{"density", 0.002}}), {{1000}});
    poisoned.open();
    at::Tensor bucket = gradient(world.rank(), 0, 0, 1000);
    bucket.narrow(0, 10, 5).fill_(std::numeric_limits<float>::quiet_NaN());
    poisoned.reduce({bucket}, 0);
    CHECK_HERE(bucket.isnan().sum().item<std::int64_t>() >= 2);
    CHECK_HERE(poisoned.saved().tensors.at("residual/0").isfinite().all().item<bool>());
    CHECK_HERE(poisoned.host.metrics.at("non_finite") == 5);
  });
}

}  // namespace compressors_tests
