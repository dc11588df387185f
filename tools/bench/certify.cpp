// What gpupoly's forms cost, on one core: many at once against one at a time, and products rounded outward against
// LibTorch's, which are not.
//   trainyard bench certify batching   64 forms of a network's output in one call, against a call each
//   trainyard bench certify products   64 forms through a matrix
#include <random>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/cpu/interval_gemm.hpp"
#include "plugins/tool/gpupoly/bounds.hpp"
#include "tools/bench/arguments.hpp"
#include "tools/bench/contest.hpp"

namespace trainyard::bench {
namespace {

using namespace gpupoly;

constexpr std::int64_t forms = 64;

std::vector<double> normal(std::int64_t count, double size) {
  static std::mt19937_64 random(7);
  std::normal_distribution<double> number(0.0, size);
  std::vector<double> all(static_cast<std::size_t>(count));
  for (double& each : all) each = static_cast<float>(number(random));
  return all;
}

/// Dense layers with relus between.
Layers dense(const std::vector<std::int64_t>& widths) {
  Layers layers;
  layers.input_shape = {widths.front()};
  layers.all.push_back({.name = "x", .map = {.channels = widths.front()}});
  for (std::size_t i = 1; i < widths.size(); ++i) {
    const std::string name = std::to_string(i);
    layers.all.push_back(
        {.step = Step::dense,
         .name = "fc" + name,
         .parents = {layers.all.size() - 1},
         .map = {.channels = widths[i]},
         .weights = normal(widths[i] * widths[i - 1], 1.0 / std::sqrt(static_cast<double>(widths[i - 1]))),
         .bias = normal(widths[i], 0.1),
         .roundings = widths[i - 1] + 1});
    if (i + 1 < widths.size())
      layers.all.push_back({.step = Step::relu,
                            .name = "relu" + name,
                            .parents = {layers.all.size() - 1},
                            .map = {.channels = widths[i]}});
  }
  return layers;
}

void batching(const char* title, const std::vector<std::int64_t>& widths, int rounds) {
  const Layers layers = dense(widths);
  const std::vector<double> rows = normal(forms * widths.back(), 1.0);
  const Forms wanted{.lower = rows, .upper = rows, .constants = std::vector<double>(forms, 0.0)};
  const std::vector<double> center = normal(widths.front(), 1.0);
  std::vector<double> lower = center, upper = center;
  for (double& each : lower) each -= 0.02;
  for (double& each : upper) each += 0.02;
  const auto with = [&](std::int64_t memory) {
    return [&, memory] {
      Verifier(layers, {.method = Method::crown, .early_termination = false, .memory = memory})
          .lower_bounds(lower, upper, wanted);
    };
  };
  const std::vector<Contender> contenders{{"64 at once", with(std::int64_t{1} << 30)},
                                          {"one at a time", with(1)}};
  print((std::string("forms of ") + title + ", intervals of its neurons included").c_str(), "us a form", 1e-6,
        forms, contenders, contest(contenders, rounds));
}

void products(std::int64_t size, int rounds) {
  const at::Tensor a = at::randn({forms, size}, at::kDouble), w = at::randn({size, size}, at::kDouble);
  const std::vector<double> weights(w.data_ptr<double>(), w.data_ptr<double>() + w.numel());
  std::vector<double> low(a.data_ptr<double>(), a.data_ptr<double>() + a.numel()), up = low;
  for (double& each : low) each = -each;
  std::vector<double> out_low(low.size()), out_up(low.size());
  const auto ours = [&](bool upward) {
    return [&, upward] {
      const kernels::Upward rounding(upward);
      kernels::interval_gemm(kernels::fastest_isa(), forms, size, size, {low.data(), up.data()},
                             weights.data(), {out_low.data(), out_up.data()});
    };
  };
  const std::vector<Contender> contenders{{"LibTorch's mm, numbers", [&] { at::mm(a, w); }},
                                          {"intervals, rounded to nearest", ours(false)},
                                          {"intervals, rounded outward", ours(true)}};
  print(("64 forms times " + std::to_string(size) + " x " + std::to_string(size)).c_str(), "us", 1e-6, 1,
        contenders, contest(contenders, rounds));
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard::bench;
  const Arguments given(argc, argv);
  at::set_num_threads(1);
  const int rounds = given.quick ? 1 : 20;
  if (given.wants("batching")) {
    if (!given.quick) batching("784-3x1024-10", {784, 1024, 1024, 1024, 10}, rounds);
    batching("784-6x256-10", {784, 256, 256, 256, 256, 256, 256, 10}, rounds);
  }
  if (given.wants("products"))
    for (const std::int64_t size : {256, 1024}) products(size, rounds);
}
