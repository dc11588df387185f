// Bounds of gpupoly: networks whose bounds are known, brute force over small ones, what each saving leaves as it
// was, and what rounding may not break.
#include <cmath>
#include <limits>
#include <random>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

#include "kernels/cpu/interval_gemm.hpp"
#include "plugins/tool/gpupoly/bounds.hpp"
#include "tests/support/plugin.hpp"

using namespace trainyard;
using namespace trainyard::gpupoly;
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
Graph dense(const std::vector<std::pair<Matrix, std::vector<double>>>& layers) {
  GraphBuilder b(schema({static_cast<std::int64_t>(layers[0].first[0].size())}), 1);
  ValueId x = b.input();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string name = "fc" + std::to_string(i + 1);
    std::vector<ValueId> inputs{x, b.parameter(name + ".weight", tensor(layers[i].first))};
    if (!layers[i].second.empty())
      inputs.push_back(b.parameter(name + ".bias", tensor({layers[i].second})[0]));
    x = b.node("Gemm", name, inputs, {{"transB", std::int64_t{1}}});
    if (i + 1 < layers.size()) x = b.relu(x);
  }
  return b.finish(x);
}

Forms unit(std::size_t outputs) {
  Forms forms{.rows = {}, .constants = std::vector<double>(2 * outputs, 0.0)};
  for (std::size_t i = 0; i < 2 * outputs; ++i)
    for (std::size_t j = 0; j < outputs; ++j)
      forms.rows.push_back(i / 2 == j ? (i % 2 == 0 ? 1.0 : -1.0) : 0.0);
  return forms;
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

TEST_CASE("gpupoly's bounds of networks worked out elsewhere") {
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
    const Forms difference{.rows = {1, -1, -1, 1}, .constants = {0, 0}};
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
