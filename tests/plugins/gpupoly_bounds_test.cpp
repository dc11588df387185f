// Bounds of gpupoly: networks whose bounds are known, brute force over small ones, what each saving leaves as it
// was, and what rounding may not break.
//
// TRAINYARD_LONGER=10 tries ten times as many slopes, and networks at ten times as many points each or more.
#include <array>
#include <cfenv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <random>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

#include "kernels/cpu/interval_gemm.hpp"
#include "plugins/tool/gpupoly/bounds.hpp"
#include "plugins/tool/gpupoly/device.hpp"
#include "tests/support/plugin.hpp"

namespace gpupoly_bounds_tests {

using namespace trainyard;
using namespace gpupoly;
using Catch::Contains;

namespace {

using Matrix = std::vector<std::vector<double>>;

at::Tensor tensor(const Matrix& rows) {
  at::Tensor t =
      at::empty({static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())});
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < rows[i].size(); ++j)
      t[static_cast<std::int64_t>(i)][static_cast<std::int64_t>(j)] = rows[i][j];
  return t;
}

BatchSchema schema(std::vector<std::int64_t> shape) {
  BatchSchema result;
  result.inputs = {{"x", std::move(shape)}};
  result.classes = 2;
  return result;
}

/// Dense layers with relus between.
ValueId add_dense(GraphBuilder& b, ValueId x,
                  const std::vector<std::pair<Matrix, std::vector<double>>>& layers) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string name = "fc" + std::to_string(i + 1);
    std::vector<ValueId> inputs{x, b.parameter(name + ".weight", tensor(layers[i].first))};
    if (!layers[i].second.empty())
      inputs.push_back(b.parameter(name + ".bias", tensor({layers[i].second})[0]));
    x = b.node("Gemm", name, inputs, {{"transB", std::int64_t{1}}});
    if (i + 1 < layers.size()) x = b.relu(x);
  }
  return x;
}
Graph dense(const std::vector<std::pair<Matrix, std::vector<double>>>& layers) {
  GraphBuilder b(schema({static_cast<std::int64_t>(layers[0].first[0].size())}), 1);
  return b.finish(add_dense(b, b.input(), layers));
}

Forms unit(std::size_t outputs) {
  std::vector<double> rows;
  for (std::size_t i = 0; i < 2 * outputs; ++i)
    for (std::size_t j = 0; j < outputs; ++j) rows.push_back(i / 2 == j ? (i % 2 == 0 ? 1.0 : -1.0) : 0.0);
  return {.lower = rows, .upper = rows, .constants = std::vector<double>(2 * outputs, 0.0)};
}

struct Found {
  double low, up;
};
/// [low, up] of each output; the network is the last of these layers.
std::vector<Found> outputs(const Layers& layers, const Settings& settings, const std::vector<double>& lower,
                           const std::vector<double>& upper) {
  Verifier verifier(layers, settings);
  const std::vector<double> bounds =
      verifier.lower_bounds(lower, upper, unit(static_cast<std::size_t>(layers.output().map.size())));
  std::vector<Found> all;
  for (std::size_t i = 0; i < bounds.size(); i += 2) all.push_back({bounds[i], -bounds[i + 1]});
  return all;
}

const Settings plain{.soundness = 1, .early_termination = false};
Settings with(Settings settings, const std::function<void(Settings&)>& change) {
  change(settings);
  return settings;
}
const Settings intervals = with(plain, [](Settings& s) { s.method = Method::ibp; });
const Settings input_only = with(plain, [](Settings& s) { s.best_of_depth = false; });
const Settings no_area = with(plain, [](Settings& s) { s.area = false; });

void check(const Found& found, double low, double up) {
  CHECK(found.low == Approx(low).margin(1e-6).epsilon(0));
  CHECK(found.up == Approx(up).margin(1e-6).epsilon(0));
}

}  // namespace

TEST_CASE("gpupoly's bounds of networks worked out elsewhere", "[gpupoly]") {
  SECTION("that of auto_LiRPA's documentation") {
    const Layers net = layers_of(dense({{{{1, -1}, {2, -1}}, {}}, {{{1, -1}}, {}}}));
    const std::vector<double> lower{-1, -2}, upper{2, 1};
    check(outputs(net, intervals, lower, upper)[0], -6, 4);
    check(outputs(net, input_only, lower, upper)[0], -3, 3);
    check(outputs(net, plain, lower, upper)[0], -3, 3);
    check(outputs(net, no_area, lower, upper)[0], -6, 4);
  }
  SECTION("that of DeepPoly's paper, section 2") {
    const Layers net =
        layers_of(dense({{{{1, 1}, {1, -1}}, {}}, {{{1, 1}, {1, -1}}, {}}, {{{1, 1}, {0, 1}}, {1, 0}}}));
    const std::vector<double> lower{-1, -1}, upper{1, 1};
    check(outputs(net, intervals, lower, upper)[0], 1, 7);
    check(outputs(net, plain, lower, upper)[0], 1, 5.5);
    check(outputs(net, plain, lower, upper)[1], 0, 2);
    const Forms difference{.lower = {1, -1, -1, 1}, .upper = {1, -1, -1, 1}, .constants = {0, 0}};
    Verifier poly(net, plain), interval(net, intervals);
    const std::vector<double> bounds = poly.lower_bounds(lower, upper, difference);
    check({bounds[0], -bounds[1]}, 1, 4);
    CHECK(interval.lower_bounds(lower, upper, difference)[0] == Approx(-1));
  }
  SECTION("one where the form over the input is worse than intervals are") {
    const Layers net = layers_of(dense({{{{2, 1}, {-3, 4}}, {}}, {{{4, -2}, {2, 1}}, {}}, {{{-2, 1}}, {}}}));
    const std::vector<double> lower{-2, -1}, upper{2, 3};
    check(outputs(net, intervals, lower, upper)[0], -56, 32);
    check(outputs(net, input_only, lower, upper)[0], -78, 170.0 / 7);
    check(outputs(net, plain, lower, upper)[0], -42, 170.0 / 7);
    for (int level = 2; level <= 4; ++level) {
      const Found found =
          outputs(net, with(plain, [&](Settings& s) { s.soundness = level; }), lower, upper)[0];
      CHECK(found.low <= -42);
      CHECK(found.up >= 170.0 / 7);
      CHECK(found.low == Approx(-42).margin(level == 2 ? 1e-9 : 1e-4).epsilon(0));
      CHECK(found.up == Approx(170.0 / 7).margin(level == 2 ? 1e-9 : 1e-4).epsilon(0));
    }
  }
}

namespace {

/// A network with random inputs of its box.
struct Sampled {
  Sampled(const char* model, const Table& options, const std::vector<std::int64_t>& shape, double radius)
      : network(test::make<Model>(model, options)->build({schema(shape), 3})),
        layers(layers_of(*network->graph())) {
    at::manual_seed(5);
    const at::Tensor center = at::rand(shape);
    std::vector<std::int64_t> many = shape;
    many.insert(many.begin(), 400);
    const at::Tensor step = (at::rand(many) * 2 - 1) * radius;
    step.narrow(0, 0, 200).copy_(step.narrow(0, 0, 200).sign() * radius);  // corners
    inputs = center + step;
    for (const std::int64_t i : order(shape)) {
      const double x = center.reshape({-1})[i].item<double>();
      lower.push_back(x - radius);
      upper.push_back(x + radius);
    }
    outputs =
        network->forward({.inputs = {inputs}, .target = {}, .indices = std::vector<std::int64_t>(400)}, {})
            .detach()
            .to(at::kDouble);
  }
  std::unique_ptr<Network> network;
  Layers layers;
  at::Tensor inputs, outputs;
  std::vector<double> lower, upper;
};

Sampled resnet(double radius, const char* shortcut = "projection") {
  return {"resnet", test::table({{"depth", 8}, {"width", 4}, {"shortcut", shortcut}}), {2, 12, 12}, radius};
}
Sampled lenet(double radius) {
  return {"lenet",
          test::table({{"channels", Value(Array{Value(std::int64_t{3}), Value(std::int64_t{4})})},
                       {"hidden", Value(Array{Value(std::int64_t{12})})}}),
          {1, 20, 20},
          radius};
}

}  // namespace

TEST_CASE("gpupoly's bounds hold of networks with convolutions, residual blocks and pools", "[gpupoly]") {
  for (const double radius : {0.0, 0.003, 0.03}) {
    const Sampled nets[] = {resnet(radius), resnet(radius, "identity"), lenet(radius)};
    for (const Sampled& net : nets)
      for (const Method method : {Method::ibp, Method::crown, Method::deeppoly}) {
        Settings settings;
        settings.method = method;
        const std::vector<Found> found = outputs(net.layers, settings, net.lower, net.upper);
        for (std::size_t i = 0; i < found.size(); ++i) {
          const at::Tensor y = net.outputs.select(1, static_cast<std::int64_t>(i));
          INFO("radius " << radius << ", output " << i << ", method " << static_cast<int>(method));
          CHECK(found[i].low <= y.min().item<double>());
          CHECK(found[i].up >= y.max().item<double>());
        }
      }
  }
}

TEST_CASE("gpupoly's bounds of a point are the network's output there", "[gpupoly]") {
  const Sampled nets[] = {resnet(0), resnet(0, "identity"), lenet(0)};
  for (const Sampled& net : nets) {
    const std::vector<Found> found =
        outputs(net.layers, with(plain, [](Settings& s) { s.soundness = 2; }), net.lower, net.upper);
    for (std::size_t i = 0; i < found.size(); ++i) {
      CHECK(found[i].up - found[i].low < 1e-9);
      CHECK(found[i].low == Approx(net.outputs[0][static_cast<std::int64_t>(i)].item<double>()).margin(1e-4));
    }
  }
}

TEST_CASE("gpupoly's forms over windows give the bounds of whole ones, for less work", "[gpupoly]") {
  for (const bool residual : {true, false}) {
    const Sampled net = residual ? resnet(0.002) : lenet(0.002);
    Verifier windows(net.layers, plain),
        whole(net.layers, with(plain, [](Settings&s) { s.windows = false; }));
    const Forms forms = unit(2);
    const std::vector<double> a = windows.lower_bounds(net.lower, net.upper, forms),
                              b = whole.lower_bounds(net.lower, net.upper, forms);
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == Approx(b[i]).margin(1e-9).epsilon(0));
    INFO(windows.counters().multiply_adds << " against " << whole.counters().multiply_adds);
    CHECK(windows.counters().multiply_adds <= whole.counters().multiply_adds);
    CHECK((residual ? 5 : 30) * windows.counters().coefficients <= 3 * whole.counters().coefficients);
  }
}

TEST_CASE("gpupoly's bounds are the same to the bit for every memory budget", "[gpupoly]") {
  const Sampled net = resnet(0.01);
  std::vector<std::vector<Found>> all;
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{1} << 20, std::int64_t{1} << 40}) {
    Settings settings;
    settings.memory = bytes;
    all.push_back(outputs(net.layers, settings, net.lower, net.upper));
  }
  for (std::size_t i = 0; i < all[0].size(); ++i)
    for (const std::vector<Found>& other : all) {
      CHECK(other[i].low == all[0][i].low);
      CHECK(other[i].up == all[0][i].up);
    }
}

TEST_CASE("gpupoly refines what needs it, for less work than all neurons", "[gpupoly]") {
  const Sampled net = resnet(0.002);
  Verifier some(net.layers, plain),
      every(net.layers, with(plain, [](Settings&s) { s.unstable_only = false; }));
  const std::vector<double> a = some.lower_bounds(net.lower, net.upper, unit(2)),
                            b = every.lower_bounds(net.lower, net.upper, unit(2));
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == Approx(b[i]).margin(1e-6).epsilon(0));
  CAPTURE(some.counters().rows, every.counters().rows, some.counters().multiply_adds);
  CHECK(2 * some.counters().rows < every.counters().rows);
  CHECK(3 * some.counters().multiply_adds < 2 * every.counters().multiply_adds);
}

TEST_CASE("gpupoly stops forms early without another verdict", "[gpupoly]") {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  std::int64_t stopped = 0, proven = 0;
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<std::pair<Matrix, std::vector<double>>> layers;
    for (const auto& [in, out] : {std::pair{8, 20}, {20, 20}, {20, 20}, {20, 1}}) {
      Matrix w(static_cast<std::size_t>(out), std::vector<double>(static_cast<std::size_t>(in)));
      std::vector<double> bias(static_cast<std::size_t>(out));
      for (auto& row : w)
        for (double& v : row) v = normal(random) / std::sqrt(static_cast<double>(in));
      for (double& v : bias) v = normal(random) + 0.3;
      layers.emplace_back(w, bias);
    }
    const Layers net = layers_of(dense(layers));
    const std::vector<double> lower(8, -0.3), upper(8, 0.3);
    const Forms form{.lower = {1.0}, .upper = {1.0}, .constants = {0.3}};
    Settings settings;
    Verifier early(net, settings), late(net, with(settings, [](Settings&s) { s.early_termination = false; }));
    const bool a = early.lower_bounds(lower, upper, form)[0] > 0,
               b = late.lower_bounds(lower, upper, form)[0] > 0;
    CHECK(a == b);
    proven += a ? 1 : 0;
    stopped += early.counters().stopped;
    CHECK(late.counters().stopped == 0);
    CHECK(early.counters().multiply_adds <= late.counters().multiply_adds);
  }
  CHECK(stopped > 0);
  CHECK(proven > 5);
  CHECK(proven < 55);
}

TEST_CASE(
    "gpupoly refines the inputs of a maximum, of which no sign decides, with early termination or without",
    "[gpupoly]") {
  at::manual_seed(4);
  GraphBuilder b(schema({1, 6, 6}), 1);
  const auto conv = [&](ValueId x, const std::string& name, std::int64_t in, double bias) {
    return b.node("Conv", name,
                  {x, b.parameter(name + ".weight", 0.3 * at::randn({3, in, 2, 2})),
                   b.parameter(name + ".bias", at::full({3}, bias))});
  };
  const ValueId positive = conv(b.relu(conv(b.input(), "first", 1, 0.0)), "second", 3, 4.0);
  const Layers net = layers_of(b.finish(b.linear(b.flatten(b.max_pool2d(positive, 2, 2)), "fc", 2)));
  const std::vector<double> lower(36, -1.0), upper(36, 1.0);
  Verifier early(net, with(plain, [](Settings&s) { s.early_termination = true; })), late(net, plain);
  for (Verifier* each : {&early, &late}) each->lower_bounds(lower, upper, unit(2));
  constexpr std::size_t second = 3;
  REQUIRE(net.all[second].name == "second");
  for (std::size_t i = 0; i < early.bounds(second).up.size(); ++i) {
    CHECK(late.bounds(second).low[i] < 0.0);  // the sign of each is known
    CHECK(early.bounds(second).low[i] == Approx(late.bounds(second).low[i]).margin(1e-9).epsilon(0));
    CHECK(early.bounds(second).up[i] == Approx(late.bounds(second).up[i]).margin(1e-9).epsilon(0));
  }
}

// Products

namespace {

/// What a CUDA device computes, by the host, one coefficient after the other; all of them, those beyond an image's
/// edge too, are compared with the processor's.
class HostProducts final : public Products {
 public:
  std::int64_t add(const gpupoly::Rows& rows, const Layer& layer, bool upward, gpupoly::Rows& out) override {
    gpupoly::Rows expected = out;
    processor_->add(rows, layer, upward, expected);
    {
      const kernels::Upward rounding(upward);
      const kernels::IntervalConv conv = geometry(rows, layer, out);
      for (std::int64_t at = 0; at < conv.forms * conv.in.coefficients(); ++at)
        kernels::interval_conv_at(conv, at, {rows.low.data(), rows.up.data()}, layer.weights.data(),
                                  rows.pixels.data()->data(), {out.low.data(), out.up.data()},
                                  [](double a, double b, double c) { return std::fma(a, b, c); });
    }
    for (std::size_t i = 0; i < out.low.size(); ++i)
      furthest =
          std::max({furthest, std::abs(out.low[i] - expected.low[i]), std::abs(out.up[i] - expected.up[i])});
    ++calls;
    return 0;
  }
  static inline int calls = 0;
  static inline double furthest = 0.0;

 private:
  std::unique_ptr<Products> processor_ = processor_products();
};

/// Bounds of all outputs, by these products.
std::vector<double> bounds_by(std::unique_ptr<Products> products, const Sampled& net, Settings settings) {
  Verifier verifier(net.layers, settings, {}, std::move(products));
  return verifier.lower_bounds(net.lower, net.upper,
                               unit(static_cast<std::size_t>(net.layers.output().map.size())));
}

Sampled strided(double radius) {
  return {"lenet",
          test::table({{"channels", Value(Array{Value(std::int64_t{3}), Value(std::int64_t{4})})},
                       {"hidden", Value(Array{Value(std::int64_t{12})})}}),
          {2, 23, 20},
          radius};
}

void check_same(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE(std::isfinite(b[i]));
    CHECK(a[i] == Approx(b[i]).margin(1e-9).epsilon(1e-9));
  }
}

}  // namespace

TEST_CASE("gpupoly's products as a CUDA device makes them are those of the processor", "[gpupoly]") {
  const Sampled nets[] = {resnet(0.003), resnet(0.003, "identity"), lenet(0.003), strided(0.003)};
  for (const Sampled& net : nets)
    for (const bool windows : {true, false})
      for (const int level : {1, 2}) {
        const Settings settings = with(plain, [&](Settings& s) {
          s.windows = windows;
          s.soundness = level;
        });
        const int before = HostProducts::calls;
        check_same(bounds_by(std::make_unique<HostProducts>(), net, settings),
                   bounds_by(processor_products(), net, settings));
        CHECK(HostProducts::calls > before);
        CHECK(HostProducts::furthest < 1e-9);
        try {
          check_same(bounds_by(cuda_products(), net, settings),
                     bounds_by(processor_products(), net, settings));
        } catch (const ConfigError& error) {  // no device here
          CHECK_THAT(error.what(), Contains("device is cuda") && Contains("set device = \"cpu\""));
        }
      }
}

TEST_CASE("gpupoly's bounds hold of inputs far from 0", "[gpupoly]") {
  std::mt19937 random(17);
  std::normal_distribution<double> normal;
  for (const double center : {-1000.0, 1000.0})
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<std::pair<Matrix, std::vector<double>>> layers;
      for (const auto& [in, out] : {std::pair{37, 19}, {19, 2}}) {
        Matrix w(static_cast<std::size_t>(out), std::vector<double>(static_cast<std::size_t>(in)));
        for (auto& row : w)
          for (double& v : row) v = static_cast<float>(normal(random));
        layers.emplace_back(w, std::vector<double>(w.size(), 1.0));
      }
      const Layers net = layers_of(dense(layers));
      const std::vector<double> lower(37, center - 1), upper(37, center + 1);
      for (const Method method : {Method::ibp, Method::deeppoly}) {
        const std::vector<Found> found =
            outputs(net, with(plain, [&](Settings& s) { s.method = method; }), lower, upper);
        for (int point = 0; point < 20; ++point) {
          std::vector<double> x(37);
          for (double& v : x) v = center + (random() % 2 == 0 ? 1 : -1);
          for (const auto& [w, bias] : layers) {
            std::vector<double> y = bias;
            for (std::size_t i = 0; i < y.size(); ++i) {
              for (std::size_t j = 0; j < x.size(); ++j) y[i] += w[i][j] * x[j];
              if (w.size() > 2) y[i] = std::max(y[i], 0.0);
            }
            x = y;
          }
          for (std::size_t i = 0; i < found.size(); ++i) {
            CHECK(found[i].low <= x[i] + 1e-6);
            CHECK(found[i].up >= x[i] - 1e-6);
          }
        }
      }
    }
}

// Rounding

namespace {

using Exact = __float128;  // 113 bits: products of doubles are exact in it

int longer() {
  const char* const times = std::getenv("TRAINYARD_LONGER");
  return times == nullptr ? 1 : std::atoi(times);
}

/// Pairs (l, u) of floats, for which a line around relu cuts it off.
std::int64_t cut_off(bool upward) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> from(0.001F, 10.0F);
  std::int64_t found = 0;
  for (int i = 0; i < 100'000 * longer(); ++i) {
    const double low = from(random), up = from(random);
    Line line;
    {
      const kernels::Upward rounding(upward);
      line = relu_line(low, up, true);
    }
    const Exact lambda = line.lambda, mu = line.mu;
    found += lambda * up + mu < up || lambda * -low + mu < 0 ? 1 : 0;
  }
  return found;
}

/// A convolution of an image of 2 x 3 by 2 x 2, and the matrix that does the same.
struct Convolution {
  explicit Convolution(std::mt19937& random) : stride(1 + static_cast<int>(random() % 2)) {
    std::normal_distribution<double> normal;
    for (int& pad : pads) pad = static_cast<int>(random() % 2);
    const int height = (pads[0] + pads[2]) / stride + 1, width = (1 + pads[1] + pads[3]) / stride + 1;
    for (double& w : kernel) w = static_cast<float>(normal(random));
    for (int channel = 0; channel < 2; ++channel)
      for (int at = 0; at < height * width; ++at) {
        std::vector<double>& row = matrix.emplace_back(6, 0.0);
        for (int tap = 0; tap < 4; ++tap) {
          const int y = at / width * stride - pads[0] + tap / 2, x = at % width * stride - pads[1] + tap % 2;
          if (y >= 0 && y < 2 && x >= 0 && x < 3)
            row[static_cast<std::size_t>(3 * y + x)] = kernel[static_cast<std::size_t>(4 * channel + tap)];
        }
      }
  }
  ValueId add(GraphBuilder& b) const {
    const at::Tensor weight = at::tensor(at::ArrayRef<double>(kernel), at::kDouble).to(at::kFloat);
    return b.node("Conv", "conv", {b.input(), b.parameter("conv.weight", weight.reshape({2, 1, 2, 2}))},
                  {{"strides", std::vector<std::int64_t>(2, stride)},
                   {"pads", std::vector<std::int64_t>(pads.begin(), pads.end())}});
  }

  int stride;
  std::array<int, 4> pads{};
  std::array<double, 8> kernel{};
  Matrix matrix;
};

/// A dense network in doubles, in which a convolution may come first, and what it gives in any arithmetic.
struct Random {
  explicit Random(std::mt19937& random, bool image) {
    std::uniform_int_distribution<int> width(1, 6);
    std::normal_distribution<double> normal;
    std::vector<int> widths{width(random), width(random), width(random), 1};
    if (image) {
      first.emplace(random);
      layers.emplace_back(first->matrix, std::vector<double>(first->matrix.size(), 0.0));
      widths = {static_cast<int>(first->matrix.size()), width(random), 1};
    }
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      Matrix w(static_cast<std::size_t>(widths[i + 1]),
               std::vector<double>(static_cast<std::size_t>(widths[i])));
      for (auto& row : w)
        for (double& v : row) v = static_cast<float>(normal(random));
      std::vector<double> bias(w.size());
      for (double& v : bias) v = static_cast<float>(normal(random) * (i % 2 == 0 ? 6 : 1));
      layers.emplace_back(w, bias);
    }
    for (std::size_t i = 0; i < layers[0].first[0].size(); ++i) {
      lower.push_back(static_cast<float>(normal(random)));
      upper.push_back(static_cast<float>(lower.back() + 0.05));
    }
  }

  Graph graph() const {
    if (!first) return dense(layers);
    GraphBuilder b(schema({1, 2, 3}), 1);
    return b.finish(add_dense(b, b.flatten(b.relu(first->add(b))), {layers.begin() + 1, layers.end()}));
  }

  template <class T>
  T value(std::vector<T> x, std::mt19937* shuffled = nullptr) const {
    for (std::size_t k = 0; k < layers.size(); ++k) {
      std::vector<T> y;
      for (std::size_t i = 0; i < layers[k].first.size(); ++i) {
        std::vector<T> terms{static_cast<T>(layers[k].second[i])};
        for (std::size_t j = 0; j < x.size(); ++j) {
          volatile T product = static_cast<T>(layers[k].first[i][j]) * x[j];
          terms.push_back(T(product));
        }
        if (shuffled != nullptr) std::shuffle(terms.begin(), terms.end(), *shuffled);
        volatile T sum = 0;
        for (const T term : terms) sum = sum + term;
        y.push_back(k + 1 < layers.size() && sum < 0 ? T(0) : T(sum));
      }
      x = std::move(y);
    }
    return x[0];
  }

  std::optional<Convolution> first;
  std::vector<std::pair<Matrix, std::vector<double>>> layers;
  std::vector<double> lower, upper;
};

/// How often an output of these networks is below its lower bound, at corners and points within.
template <class T>
std::int64_t violations(int soundness, const std::vector<int>& modes) {
  std::mt19937 random(11);
  std::int64_t found = 0;
  const bool many = longer() > 1;
  for (int trial = 0; trial < (many ? 1000 * longer() : 1500); ++trial) {
    const Random net(random, trial % 3 == 0);
    const Layers layers = layers_of(net.graph());
    Settings settings;
    settings.soundness = soundness;
    Verifier verifier(layers, settings);
    const double bound =
        verifier.lower_bounds(net.lower, net.upper, {.lower = {1.0}, .upper = {1.0}, .constants = {0.0}})[0];
    std::uniform_real_distribution<double> share;
    for (unsigned point = 0; point < (many ? 100U * static_cast<unsigned>(longer()) : 64U); ++point) {
      std::vector<T> x;  // the corners, then points between them
      for (std::size_t i = 0; i < net.lower.size(); ++i) {
        const double at = point < 64 ? point >> i & 1 : share(random);
        x.push_back(std::clamp(static_cast<T>(net.lower[i] + at * (net.upper[i] - net.lower[i])),
                               static_cast<T>(net.lower[i]), static_cast<T>(net.upper[i])));
      }
      for (const int mode : modes) {
        std::fesetround(mode);
        const T value = net.value(x, sizeof(T) == 4 ? &random : nullptr);
        std::fesetround(FE_TONEAREST);
        found += static_cast<Exact>(value) < static_cast<Exact>(bound) ? 1 : 0;
      }
    }
  }
  return found;
}

}  // namespace

TEST_CASE("gpupoly's lines around a relu never cut it off, where the thread rounds up", "[gpupoly]") {
  CHECK(cut_off(true) == 0);
  CHECK(cut_off(false) > 100);  // so the check sees what rounding to nearest does
}

TEST_CASE("gpupoly's lines around a maximum hold of all points of its box", "[gpupoly]") {
  std::mt19937 random(13);
  std::uniform_real_distribution<double> from(-1, 1), share(0, 1);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<double> low, up;
    for (int i = 0; i < 4; ++i) {
      const double a = from(random), b = from(random);
      low.push_back(-std::min(a, b));
      up.push_back(std::max(a, b));
    }
    const Line line = max_line({0, 1, 2, 3}, low, up, true);
    for (int point = 0; point < 50; ++point) {
      std::vector<double> x;
      for (std::size_t i = 0; i < 4; ++i) {
        const double at = point % 2 == 0 ? share(random) : std::round(share(random));
        x.push_back(-low[i] + at * (up[i] + low[i]));
      }
      const double y = *std::max_element(x.begin(), x.end()), z = x[static_cast<std::size_t>(line.from)];
      CHECK(line.alpha * z - line.kappa <= y + 1e-12);
      CHECK(line.lambda * z + line.mu >= y - 1e-12);
    }
  }
}

TEST_CASE("gpupoly's bounds hold of the real function from level 2 on", "[gpupoly]") {
  CHECK(violations<Exact>(2, {FE_TONEAREST}) == 0);
  CHECK(violations<Exact>(1, {FE_TONEAREST}) > 10);
}

TEST_CASE("gpupoly's bounds hold of the program from level 3 on, of any rounding at level 4", "[gpupoly]") {
  CHECK(violations<float>(3, {FE_TONEAREST}) == 0);
  CHECK(violations<float>(4, {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) == 0);
  CHECK(violations<float>(2, {FE_TONEAREST}) > 10);
}

TEST_CASE("gpupoly's products are those of any instruction set, and above the exact ones where it rounds up",
          "[gpupoly]") {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  for (const auto& [rows, inner, columns] : {std::tuple{1, 1, 1}, {3, 7, 17}, {6, 600, 33}, {9, 20, 16}}) {
    const auto draw = [&](int n) {
      std::vector<double> v(static_cast<std::size_t>(n));
      for (double& x : v) x = std::abs(normal(random)) < 0.3 ? 0.0 : normal(random);
      return v;
    };
    const std::vector<double> middle = draw(rows * inner), weights = draw(inner * columns);
    std::vector<double> low = middle, up = middle;
    for (std::size_t i = 0; i < middle.size(); ++i) {
      low[i] = -middle[i];
      if (middle[i] != 0.0) up[i] += 1e-9;
    }
    for (const auto isa : {kernels::Isa::portable, kernels::Isa::avx2, kernels::Isa::avx512}) {
      if (!kernels::supported(isa)) continue;
      std::vector<double> out_low(static_cast<std::size_t>(rows * columns)), out_up = out_low;
      {
        const kernels::Upward upward(true);
        kernels::interval_gemm(isa, rows, inner, columns, {low.data(), up.data()}, weights.data(),
                               {out_low.data(), out_up.data()});
      }
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < columns; ++c) {
          Exact least = 0, most = 0, size = 0;
          for (int k = 0; k < inner; ++k) {
            const Exact w = weights[static_cast<std::size_t>(k * columns + c)];
            const Exact a = -Exact(low[static_cast<std::size_t>(r * inner + k)]) * w,
                        b = Exact(up[static_cast<std::size_t>(r * inner + k)]) * w;
            least += std::min(a, b);
            most += std::max(a, b);
            size += a < 0 ? -a : a;
          }
          const auto at = static_cast<std::size_t>(r * columns + c);
          CHECK(Exact(out_low[at]) >= -least);
          CHECK(Exact(out_up[at]) >= most);
          CHECK(out_up[at] - static_cast<double>(most) <= 1e-15 * inner * static_cast<double>(size) + 1e-300);
          CHECK(out_low[at] + static_cast<double>(least) <=
                1e-15 * inner * static_cast<double>(size) + 1e-300);
        }
    }
  }
}

TEST_CASE("gpupoly's bounds hold of a program that adds up large products, from level 3 on", "[gpupoly]") {
  std::mt19937 random(23);
  std::normal_distribution<double> normal;
  std::int64_t violated[5] = {};
  for (int trial = 0; trial < 200; ++trial) {
    Matrix w(1, std::vector<double>(9));
    for (double& v : w[0]) v = static_cast<float>(normal(random));
    const Layers net = layers_of(dense({{w, {}}}));
    // The far end is one time the lower, one time the upper one.
    const double far = trial % 2 == 0 ? -1000.0 : 1000.0;
    const std::vector<double> lower(9, std::min(far, 0.0)), upper(9, std::max(far, 0.0));
    for (const int level : {2, 3}) {
      const Found found =
          outputs(net, with(plain, [&](Settings& s) { s.soundness = level; }), lower, upper)[0];
      for (const bool least : {true, false}) {
        std::vector<float> terms;
        for (const double v : w[0]) {
          volatile float product =
              static_cast<float>(v) * static_cast<float>((v < 0) == least ? upper[0] : lower[0]);
          terms.push_back(float(product));
        }
        for (int order = 0; order < 10; ++order) {
          std::shuffle(terms.begin(), terms.end(), random);
          volatile float sum = 0;
          for (const float term : terms) sum = sum + term;
          violated[level] += least ? sum < found.low : sum > found.up;
        }
      }
    }
  }
  CHECK(violated[3] == 0);
  CHECK(violated[2] > 100);
}

TEST_CASE("gpupoly's bounds hold behind factors of both signs", "[gpupoly]") {
  at::manual_seed(3);
  GraphBuilder b(schema({6}), 1);
  ValueId x = b.input();
  const at::Tensor first = at::randn({8, 6}), factor = at::randn({8}), second = at::randn({3, 8});
  x = b.node("Gemm", "fc1", {x, b.parameter("fc1.weight", first)}, {{"transB", std::int64_t{1}}});
  x = b.relu(b.node("Mul", "scale", {x, b.parameter("scale.weight", factor)}));
  const Layers net = layers_of(
      b.finish(b.node("Gemm", "fc2", {x, b.parameter("fc2.weight", second)}, {{"transB", std::int64_t{1}}})));
  const std::vector<double> lower(6, -0.5), upper(6, 0.5);
  const at::Tensor inputs = at::rand({2000, 6}) - 0.5, corners = inputs.sign() * 0.5;
  for (const Method method : {Method::ibp, Method::crown, Method::deeppoly}) {
    const std::vector<Found> found =
        outputs(net, with(plain, [&](Settings& s) { s.method = method; }), lower, upper);
    for (const at::Tensor& points : {inputs, corners}) {
      const at::Tensor y = (points.matmul(first.t()) * factor).relu().matmul(second.t()).to(at::kDouble);
      for (std::size_t i = 0; i < found.size(); ++i) {
        const at::Tensor of = y.select(1, static_cast<std::int64_t>(i));
        CHECK(found[i].low <= of.min().item<double>() + 1e-5);
        CHECK(found[i].up >= of.max().item<double>() - 1e-5);
      }
    }
  }
  // Where all neurons are on, a form is the function itself: its bounds are those of the linear one.
  const std::vector<double> tiny_low(6, 0.0999), tiny_up(6, 0.1001);
  const std::vector<Found> found = outputs(net, input_only, tiny_low, tiny_up);
  const at::Tensor at_center =
      (at::full({1, 6}, 0.1).matmul(first.t()) * factor).relu().matmul(second.t()).to(at::kDouble);
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].up - found[i].low < 0.02);
    CHECK(found[i].low <= at_center[0][static_cast<std::int64_t>(i)].item<double>() + 1e-5);
    CHECK(found[i].up >= at_center[0][static_cast<std::int64_t>(i)].item<double>() - 1e-5);
  }
}

TEST_CASE("gpupoly's products of many forms round up on all threads", "[gpupoly]") {
  std::mt19937 random(29);
  std::normal_distribution<double> normal;
  constexpr std::int64_t forms = 64, size = 96;
  Layer layer{.step = Step::dense, .map = {.channels = size}};
  for (std::int64_t i = 0; i < size * size; ++i) layer.weights.push_back(normal(random));
  gpupoly::Rows rows = gpupoly::Rows::over(layer.map, gpupoly::Rows::whole(layer.map),
                                           std::vector<std::array<std::int64_t, 2>>(forms, {0, 0}));
  for (std::size_t i = 0; i < rows.up.size(); ++i) rows.low[i] = -(rows.up[i] = normal(random));
  gpupoly::Rows out = gpupoly::Rows::over(layer.map, gpupoly::Rows::whole(layer.map), rows.pixels);
  {
    const kernels::Upward upward(true);
    processor_products()->add(rows, layer, true, out);
  }
  std::int64_t inside = 0, equal = 0;
  for (std::size_t r = 0; r < forms; ++r)
    for (std::size_t c = 0; c < size; ++c) {
      Exact sum = 0;
      for (std::size_t k = 0; k < size; ++k)
        sum += Exact(rows.up[r * size + k]) * layer.weights[k * size + c];
      inside += Exact(out.up[r * size + c]) < sum || -Exact(out.low[r * size + c]) > sum ? 1 : 0;
      equal += -out.low[r * size + c] == out.up[r * size + c] ? 1 : 0;
    }
  CHECK(inside == 0);
  CHECK(equal < 100);
}

TEST_CASE("gpupoly's interval sums hold what they sum, and its sizes are no less, where the thread rounds up",
          "[gpupoly]") {
  std::mt19937 random(19);
  std::normal_distribution<double> normal;
  for (const int count : {1, 5, 16, 37, 200})
    for (const double center : {0.0, 300.0, -300.0}) {
      std::vector<double> weights, low, up, sizes;
      Exact least = 0, most = 0, size = 0;
      for (int i = 0; i < count; ++i) {
        const double w = normal(random), a = center + normal(random), b = a + std::abs(normal(random));
        weights.push_back(w);
        low.push_back(-a);
        up.push_back(b);
        sizes.push_back(std::max(std::abs(a), std::abs(b)));
        least += std::min(Exact(w) * a, Exact(w) * b);
        most += std::max(Exact(w) * a, Exact(w) * b);
        size += Exact(std::abs(w)) * sizes.back();
      }
      for (const auto isa : {kernels::Isa::portable, kernels::Isa::avx2, kernels::Isa::avx512}) {
        if (!kernels::supported(isa)) continue;
        kernels::IntervalSum sum{1.0, 2.0, 3.0};
        {
          const kernels::Upward upward(true);
          kernels::interval_dot(isa, count, weights.data(), {low.data(), up.data()}, sizes.data(), sum);
        }
        const double slack = 1e-14 * static_cast<double>(size + 3);
        for (const auto& [found, exact] :
             {std::pair<Exact, Exact>{sum.low, 1 - least}, {sum.up, 2 + most}, {sum.size, 3 + size}}) {
          CHECK((found >= exact));
          CHECK((found <= exact + slack));
        }
      }
    }
}

// What it refuses

TEST_CASE("gpupoly refuses what it cannot bound, by the node's name", "[gpupoly]") {
  const auto refused = [](const std::function<ValueId(GraphBuilder&)>& build) {
    GraphBuilder b(schema({4, 6, 6}), 1);
    const ValueId x = build(b);
    return b.finish(x);
  };
  CHECK_THROWS_WITH(layers_of(refused([](GraphBuilder& b) {
                      return b.linear(b.flatten(b.node("Sigmoid", "squash", {b.input()})), "fc", 2);
                    })),
                    Contains("\"squash\" (Sigmoid)"));
  CHECK_THROWS_WITH(layers_of(refused([](GraphBuilder& b) {
                      return b.flatten(b.node("Mul", "gate", {b.input(), b.input()}));
                    })),
                    Contains("\"gate\" (Mul)"));
  CHECK_THROWS_WITH(layers_of(refused([](GraphBuilder& b) {
                      const std::map<std::string, Attribute, std::less<>> holes{
                          {"kernel_shape", std::vector<std::int64_t>{2, 1}},
                          {"dilations", std::vector<std::int64_t>{7, 1}},
                          {"pads", std::vector<std::int64_t>{1, 0, 1, 0}}};
                      return b.flatten(b.node("MaxPool", "hollow", {b.input()}, holes));
                    })),
                    Contains("\"hollow\" (MaxPool)") && Contains("lies in the padding alone"));
  CHECK_THROWS_WITH(layers_of(refused([](GraphBuilder& b) {
                      return b.flatten(b.node("GlobalAveragePool", "mean", {b.flatten(b.input(), 2)}));
                    })),
                    Contains("GlobalAveragePool"));
  CHECK_THROWS_WITH(
      layers_of(refused([](GraphBuilder& b) {
        const at::Tensor fill = at::full({}, std::nan(""));
        const ValueId pads = b.constant("pads", at::tensor({0, 0, 1, 0, 0, 0, 0, 0}, at::kLong));
        return b.flatten(b.node("Pad", "hole", {b.input(), pads, b.constant("fill", fill)}));
      })),
      Contains("\"hole\" (Pad)"));
  CHECK_THROWS_WITH(layers_of(refused([](GraphBuilder& b) {
                      const ValueId x = b.flatten(b.input());
                      return b.node("Gemm", "square", {x, x, x}, {{"transB", std::int64_t{1}}});
                    })),
                    Contains("square"));
  CHECK_THROWS_WITH(
      layers_of(refused([](GraphBuilder& b) {
        return b.flatten(b.node("Div", "nothing", {b.input(), b.constant("zero", at::zeros({1}))}));
      })),
      Contains("\"nothing\"") && Contains("not finite"));
  CHECK_THROWS_WITH(layers_of(refused([](GraphBuilder& b) { return b.input(); })),
                    Contains("needs an output"));
}

}  // namespace gpupoly_bounds_tests
