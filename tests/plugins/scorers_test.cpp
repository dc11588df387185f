// Scorers against loops over images, numbers of the papers' formulas by hand, and how sizes are met.
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <catch2/catch.hpp>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/loss.hpp>
#include <trainyard/scorer.hpp>
#include <trainyard/testing/run.hpp>

#include "plugins/tool/prune/allocation.hpp"
#include "tests/support/plugin.hpp"

namespace scorers_test {

using namespace trainyard;

namespace {

const Table none;

at::Tensor scores(const char* scorer, const at::Tensor& weight, const at::Tensor& rows,
                  const Table& options = none) {
  const auto made = test::make<Scorer>(scorer, options);
  const ScoredLayer layer{.name = "fc", .weight = weight.unsqueeze(2), .groups = 1};
  at::Tensor folded;
  if (made->reads().inputs)
    for (std::int64_t i = 0; i < rows.size(0); ++i)  // a pass each
      folded = made->fold(layer, {rows.slice(0, i, i + 1).unsqueeze(2).unsqueeze(3), {}}, folded);
  return made->scores(layer, folded, RandomStream(1, "test")).to(at::kDouble);
}

/// One convolution, flattened: outputs of a sample are all its positions.
struct Case {
  std::int64_t inputs, outputs, kernel, stride, padding, groups, size;
};

struct Image {
  Case of;
  std::unique_ptr<Network> network;
  Batch batch;

  explicit Image(const Case& c, std::int64_t samples = 5) : of(c) {
    BatchSchema schema = testing::tiny_schema(0);
    schema.inputs[0].shape = {c.inputs, c.size, c.size};
    GraphBuilder b(schema, 7);
    const ConvOptions options{
        .kernel = c.kernel, .stride = c.stride, .padding = c.padding, .groups = c.groups};
    const ValueId conv = b.conv2d(b.input(), "conv", c.outputs, options);
    network = std::make_unique<GraphNetwork>(b.finish(b.flatten(conv)));
    at::Tensor x = at::empty({samples, c.inputs, c.size, c.size}),
               t = at::empty({samples, network->output_shape()[0]});
    fill_normal(x, RandomStream(3, "x"), 0.2, 1.0);
    x.masked_fill_(x.abs().lt(0.3), 0);  // as after a relu, some are 0
    fill_normal(t, RandomStream(3, "t"), 0.0, 1.0);
    batch.inputs = {x};
    batch.target = t;
    for (std::int64_t i = 0; i < samples; ++i) batch.indices.push_back(i);
    batch.weight = static_cast<double>(samples);
  }
  std::int64_t length() const { return (of.size + 2 * of.padding - of.kernel) / of.stride + 1; }
  /// An element of the padded image.
  double at(std::int64_t n, std::int64_t c, std::int64_t y, std::int64_t x) const {
    if (y < 0 || x < 0 || y >= of.size || x >= of.size) return 0.0;
    return batch.inputs[0][n][c][y][x].item<double>();
  }
  /// Calls visit(input channel, tap, number, weight) for each term of an output at a position.
  template <class Visit>
  void terms(std::int64_t n, std::int64_t o, std::int64_t py, std::int64_t px, const Visit& visit) const {
    const at::Tensor weight = network->parameters()[0].tensor;
    const std::int64_t own = of.inputs / of.groups, first = o / (of.outputs / of.groups) * own;
    for (std::int64_t c = 0; c < own; ++c)
      for (std::int64_t ky = 0; ky < of.kernel; ++ky)
        for (std::int64_t kx = 0; kx < of.kernel; ++kx)
          visit(first + c, ky * of.kernel + kx,
                at(n, first + c, py * of.stride + ky - of.padding, px * of.stride + kx - of.padding),
                weight[o][c][ky][kx].item<double>());
  }

  /// The scores of one layer by the tool's passes, two samples at a time.
  at::Tensor scored(const char* scorer, const Table& options = none) {
    pruning::SampleSet set;
    set.weight = batch.weight;
    for (std::int64_t first = 0; first < batch.size(); first += 2) {
      Batch part;
      part.inputs = {batch.inputs[0].slice(0, first, first + 2)};
      part.target = batch.target.slice(0, first, first + 2);
      for (std::int64_t i = 0; i < part.target.size(0); ++i) part.indices.push_back(first + i);
      part.weight = static_cast<double>(part.size());
      set.batches.push_back(part);
    }
    const filters::Channels channels(*network->graph());
    const auto layers = pruning::layers_of(*network, channels, {"*"});
    test::QuietHost host;
    const auto loss = test::make<Loss>("mse");
    return pruning::scores_of(*test::make<Scorer>(scorer, options), *network, layers, set, *loss, host,
                              [] { return false; })
        .front()
        .scores;
  }
};

const Case cases[] = {
    {3, 4, 3, 1, 1, 1, 5}, {4, 6, 3, 2, 1, 2, 6}, {4, 4, 2, 1, 0, 4, 4}, {6, 5, 1, 1, 0, 1, 1}};

double largest(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace

TEST_CASE("scores of the example of the papers by hand", "[pruning]") {
  const at::Tensor w = at::tensor({1.0, -2.0, 3.0, -1.0, 0.5, 2.0}).view({2, 3}).to(at::kFloat);
  const at::Tensor rows = at::tensor({1.0, 2.0, 0.5, 2.0, 1.0, 1.0}).view({2, 3}).to(at::kFloat);
  const at::Tensor sipp = scores("sipp", w, rows);
  CHECK(largest(sipp.flatten(), at::tensor({0.4, 1.0, 0.6, 1.0, 0.5, 0.8}, at::kDouble)) < 1e-12);
  CHECK(largest(scores("pfp", w, rows), at::tensor({1.0, 1.0, 0.8}, at::kDouble)) < 1e-12);
  CHECK(scores("filter_norm", w, rows).equal(at::tensor({6.0, 3.5}, at::kDouble)));
  const at::Tensor l2 = scores("filter_norm", w, rows, test::table({{"norm", "l2"}}));
  CHECK(largest(l2, at::tensor({std::sqrt(14.0), std::sqrt(5.25)}, at::kDouble)) < 1e-6);
  const auto kept = [](const at::Tensor& of) {
    return pruning::kept_weights({of}, pruning::Allocation::global, 4.0 / 6.0)[0]
        .flatten()
        .nonzero()
        .flatten();
  };
  CHECK(kept(scores("magnitude", w, rows)).equal(at::tensor({1, 2, 3, 5}, at::kLong)));
  CHECK(kept(sipp).equal(at::tensor({1, 2, 3, 5}, at::kLong)));
  const at::Tensor two = pruning::kept_weights({sipp}, pruning::Allocation::global, 2.0 / 6.0)[0];
  CHECK(two.flatten().nonzero().flatten().equal(at::tensor({1, 3}, at::kLong)));
}

TEST_CASE("shares in sums are those of loops over an image", "[pruning]") {
  for (const Case& of : cases) {
    CAPTURE(of.kernel, of.groups);
    Image image(of);
    const std::int64_t taps = of.kernel * of.kernel, own = of.inputs / of.groups, length = image.length();
    at::Tensor sipp = at::zeros({of.outputs, own, taps}, at::kDouble),
               pfp = at::zeros({of.inputs}, at::kDouble);
    for (std::int64_t n = 0; n < image.batch.size(); ++n)
      for (std::int64_t o = 0; o < of.outputs; ++o) {
        at::Tensor mean = at::zeros({2, own, taps}, at::kDouble);  // of positive inputs, of negative ones
        for (std::int64_t y = 0; y < length; ++y)
          for (std::int64_t x = 0; x < length; ++x) {
            double sums[2][2] = {};
            image.terms(n, o, y, x,
                        [&](auto, auto, double a, double w) { sums[a < 0][w < 0] += std::abs(a * w); });
            image.terms(n, o, y, x, [&](std::int64_t c, std::int64_t tap, double a, double w) {
              const double sum = sums[a < 0][w < 0], share = sum > 0 ? std::abs(a * w) / sum : 0.0;
              mean[a < 0 ? 1 : 0][c % own][tap] += share / static_cast<double>(length * length);
              pfp[c] = std::max(pfp[c].item<double>(), share);
            });
          }
        sipp[o] = at::maximum(sipp[o], mean.amax(0));
      }
    CHECK(largest(image.scored("sipp"), sipp) < 1e-6);
    CHECK(largest(image.scored("pfp"), pfp) < 1e-6);
  }
}

TEST_CASE("what the loss would change by is that of loops", "[pruning]") {
  for (const Case& of : cases) {
    CAPTURE(of.kernel, of.groups);
    Image image(of);
    const std::int64_t taps = of.kernel * of.kernel, own = of.inputs / of.groups, length = image.length();
    const at::Tensor bias = image.network->parameters()[1].tensor;
    at::Tensor change = at::zeros({of.outputs, own, taps}, at::kDouble);
    const auto outputs = static_cast<double>(image.batch.size() * of.outputs * length * length);
    for (std::int64_t n = 0; n < image.batch.size(); ++n)
      for (std::int64_t o = 0; o < of.outputs; ++o)
        for (std::int64_t y = 0; y < length; ++y)
          for (std::int64_t x = 0; x < length; ++x) {
            double output = bias[o].item<double>();
            image.terms(n, o, y, x, [&](auto, auto, double a, double w) { output += a * w; });
            const double error = output - image.batch.target[n][(o * length + y) * length + x].item<double>();
            image.terms(n, o, y, x, [&](std::int64_t c, std::int64_t tap, double a, double w) {
              change[o][c % own][tap] += 2.0 * error / outputs * a * w;
            });
          }
    CHECK(largest(image.scored("snip"), change.abs()) < 1e-6);
    CHECK(largest(image.scored("taylor"), change.sum({1, 2}).square()) < 1e-6);
    const at::Tensor weight = image.network->parameters()[0].tensor.detach().to(at::kDouble);
    at::Tensor magnitude = at::zeros_like(weight), l1 = at::zeros({of.outputs}, at::kDouble),
               l2 = at::zeros_like(l1);
    for (std::int64_t o = 0; o < of.outputs; ++o)
      for (std::int64_t k = 0; k < own * taps; ++k) {
        const double w = weight[o].flatten()[k].item<double>();
        magnitude[o].flatten()[k] = std::abs(w);
        l1[o] += std::abs(w);
        l2[o] += w * w;
      }
    CHECK(largest(image.scored("magnitude").flatten(), magnitude.flatten()) == 0.0);
    CHECK(largest(image.scored("filter_norm"), l1) < 1e-6);
    CHECK(largest(image.scored("filter_norm", test::table({{"norm", "l2"}})), l2.sqrt()) < 1e-6);
  }
}

TEST_CASE("scores by chance are drawn anew for each layer, and the same each time", "[pruning]") {
  const auto made = test::make<Scorer>("random");
  const ScoredLayer layer{.name = "fc", .weight = at::ones({3, 4, 1}), .groups = 1};
  const RandomStream first(1, "scores/a"), second(1, "scores/b");
  const at::Tensor a = made->scores(layer, {}, first);
  CHECK(a.equal(made->scores(layer, {}, first)));
  CHECK_FALSE(a.equal(made->scores(layer, {}, second)));
  CHECK(test::make<Scorer>("random", test::table({{"of", "filters"}}))->scores(layer, {}, first).numel() ==
        3);
}

TEST_CASE("the budget of PFP by hand", "[pruning]") {
  const double alpha = pruning::pfp_alpha(1, 1);
  CHECK(std::abs(alpha - 237.683701) < 5e-7);
  CHECK(pruning::pfp_draws(2.8, alpha, 10.0) == 520);
  CHECK(pruning::pfp_draws(2.8, alpha, 100.0) == 42);
  CHECK(pruning::pfp_kept({1.0, 1.0, 0.8}, alpha, 100.0) == 3);
  CHECK(pruning::pfp_kept({1.0, 0.0, 0.0}, alpha, 10.0) == 1);
  // Two draws of four channels alike: 4 (1 - (3/4)^2) = 1.75.
  const double eps = 1e6;
  const double two = 1.5 * eps * eps / (3.0 * (6.0 + 2.0 * eps) * 4.0);
  CHECK(pruning::pfp_draws(4.0, two, eps) == 2);
  CHECK(pruning::pfp_kept({1.0, 1.0, 1.0, 1.0}, two, eps) == 2);
  CHECK(pruning::samples_for(96.0, 202.0) ==
        static_cast<std::int64_t>(
            std::ceil(3.0 * (std::log(8.0 * 96.0) + std::log(202.0) + 16.0 * std::log(10.0)))));
}

TEST_CASE("weights that are gone never come back, and equal shares are of each layer", "[pruning]") {
  const std::vector<at::Tensor> scores = {at::tensor({5.0, -1.0, 4.0, 3.0}, at::kDouble),
                                          at::tensor({2.0, 1.0}, at::kDouble)};
  const auto counts = [&](pruning::Allocation allocation, double share) {
    std::vector<std::int64_t> found;
    for (const at::Tensor& each : pruning::kept_weights(scores, allocation, share))
      found.push_back(each.sum().item<std::int64_t>());
    return found;
  };
  CHECK(counts(pruning::Allocation::global, 0.5) == std::vector<std::int64_t>{3, 0});
  CHECK(counts(pruning::Allocation::uniform, 0.5) == std::vector<std::int64_t>{2, 1});
  CHECK(counts(pruning::Allocation::global, 1.0) == std::vector<std::int64_t>{3, 2});
  CHECK_FALSE(pruning::kept_weights(scores, pruning::Allocation::global, 1.0)[0][1].item<bool>());
}

TEST_CASE("a size is found where it lies between two", "[pruning]") {
  int calls = 0;
  const auto size = [&](double share) {
    ++calls;
    return std::llround(1e5 * share * share * share);
  };
  for (const double target : {200.0, 5000.0, 50000.0, 99000.0}) {
    calls = 0;
    const pruning::Solved found = pruning::solve(size, 100000, target, 0.005 * target, 20);
    CHECK(std::abs(static_cast<double>(found.size) - target) <= 0.005 * target);
    CHECK(size(found.share) == found.size);
    CHECK(calls <= 21);
  }
}

TEST_CASE("weights on which nothing depends are taken away, and no others", "[pruning]") {
  BatchSchema schema = testing::tiny_schema();
  GraphBuilder b(schema, 5);
  ValueId x = b.relu(b.linear(b.input(), "fc1", 6));
  x = b.relu(b.linear(x, "fc2", 5));
  GraphNetwork network(b.finish(b.linear(x, "fc3", 3)));
  std::map<std::string, at::Tensor> all;
  for (const NamedTensor& each : network.parameters()) all.emplace(each.name, each.tensor.detach());
  all.at("fc1.bias").add_(3.0);  // alive on all samples
  all.at("fc2.bias").add_(3.0);
  all.at("fc2.weight").select(1, 2).zero_();  // nobody reads fc1[2]
  all.at("fc2.weight").select(0, 1).zero_();  // fc2[1] is constant
  all.at("fc1.bias")[4] = -100.0;             // fc1[4] is never above 0
  pruning::SampleSet set;
  set.batches = {testing::tiny_batch(schema, 8), testing::tiny_batch(schema, 8, 2)};
  set.batches[1].inputs[0].zero_();
  all.at("fc1.bias")[5] = -0.01;  // fc1[5] is above 0 in the first batch alone
  const filters::Channels channels(*network.graph());
  const auto layers = pruning::layers_of(network, channels, {"*"});
  std::map<std::string, at::Tensor> expected;
  for (const auto& [name, tensor] : all) expected.emplace(name, tensor.clone());
  for (const std::int64_t dead : {2, 4}) {
    expected.at("fc1.weight").select(0, dead).zero_();
    expected.at("fc1.bias")[dead] = 0.0;
    expected.at("fc2.weight").select(1, dead).zero_();
  }
  expected.at("fc2.bias")[1] = 0.0;
  expected.at("fc3.weight").select(1, 1).zero_();
  const std::int64_t left = pruning::propagate(network, layers, set);
  std::int64_t sum = 0;
  for (const auto& [name, tensor] : all) {
    CAPTURE(name);
    CHECK(tensor.equal(expected.at(name)));
    sum += tensor.count_nonzero().item<std::int64_t>();
  }
  CHECK(left == sum);
}

}  // namespace scorers_test
