// What block-wise dropout saves: whole training steps of an MLP 784-1024-1024-1024-10, batch 1024, against
// the other kinds of dropout; the products of one of its hidden layers against LibTorch's; and what masking
// alone costs. One thread.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <cstring>
#include <random>

#include <trainyard/context.hpp>
#include <trainyard/dropout.hpp>

#include "kernels/cpu/masked_gemm.hpp"
#include "support/plugin.hpp"
#include "tools/bench/contest.hpp"
#include "tools/bench/ours.hpp"

namespace trainyard::bench {
namespace {

using at::Tensor;

constexpr std::int64_t rows = 1024, width = 1024, tau = 8, block = 32;

// --- whole steps

std::vector<std::string> with(const std::string& optimizer, const std::string& dropout) {
  std::vector<std::string> sets = {"model.layers=[784, 1024, 1024, 1024, 10]",
                                   "data.train.batch_size=1024",
                                   "data.samples=1024",
                                   "data.shape=[784]",
                                   "data.batches=8",
                                   "optimizer.type=\"" + optimizer + "\""};
  if (!dropout.empty()) sets.push_back("model.dropout=" + dropout);
  return sets;
}

void whole_steps(const std::string& optimizer, int rounds) {
  const std::string bank = ", tau = 8, sigma = 64}";
  const std::pair<const char*, std::string> kinds[] = {
      {"standard", "{type = \"standard\", p = 0.5}"},
      {"blockwise (bar 0.77)", "{type = \"blockwise\", p = 0.5, block = 32" + bank},
      {"gyro", "{type = \"gyro\", p = 0.5" + bank},
      {"no dropout", ""},
      {"blockwise, p = 0 (against the line before: 1.02)", "{type = \"blockwise\", p = 0.0" + bank},
      {"standard, once more", "{type = \"standard\", p = 0.5}"}};
  std::vector<Contender> contenders;
  for (const auto& [name, dropout] : kinds) {
    const auto run = std::make_shared<Ours>(with(optimizer, dropout));
    contenders.push_back({name, [run] { (*run)(1); }});
  }
  print(("A training step, " + optimizer).c_str(), "ms", 1e-3, 1, contenders, contest(contenders, rounds));
}

// --- products

/// A hidden layer with masks on either side, and its products by LibTorch.
struct Layer {
  std::vector<std::vector<std::int32_t>> in, out;
  std::vector<kernels::Slice> slices;
  Tensor x = at::randn({rows, width}), weight = at::randn({width, width}), bias = at::randn({width});
  Tensor dy = at::randn({rows, width}), y = at::empty({rows, width}), dx = at::empty({rows, width});
  Tensor dw = at::empty({width, width}), db = at::empty({width});
  kernels::MaskedGemm gemm;

  explicit Layer(double p) {
    std::mt19937 random(3);
    std::bernoulli_distribution live(1.0 - p);
    for (auto* side : {&in, &out})
      for (std::int64_t slice = 0; slice < tau; ++slice) {
        side->emplace_back();
        for (std::int32_t number = 0; number < width / block; ++number)
          if (live(random)) side->back().push_back(number);
      }
    for (std::size_t i = 0; i < in.size(); ++i) {
      const auto slice = static_cast<std::int64_t>(i);
      slices.push_back({rows * slice / tau, rows * (slice + 1) / tau, in[i], out[i]});
    }
  }
  void skip() {
    const auto read = [](const Tensor& t) {
      return kernels::Rows<const float>{t.const_data_ptr<float>(), t.stride(0)};
    };
    const auto write = [](const Tensor& t) {
      return kernels::Rows<float>{t.mutable_data_ptr<float>(), t.stride(0)};
    };
    const kernels::MaskedLinear layer{
        .in = width, .out = width, .block = block, .slices = slices, .relu = true, .scale = 2};
    gemm.forward(layer, read(x), read(weight), bias.const_data_ptr<float>(), write(y));
    gemm.input_gradient(layer, read(dy), read(y), read(weight), write(dx));
    gemm.weight_gradient(layer, read(dy), read(y), read(x), write(dw), db.mutable_data_ptr<float>());
  }
  void by_libtorch() {
    const c10::NoGradGuard untracked;
    y = at::linear(x, weight, bias);
    dx = at::mm(dy, weight);
    dw = at::mm(dy.t(), x);
    db = dy.sum(0);
  }
};

void products(int rounds) {
  std::vector<std::shared_ptr<Layer>> layers;
  std::vector<Contender> contenders;
  const auto add = [&](const char* name, double p, void (Layer::*run)()) {
    const auto layer = layers.emplace_back(std::make_shared<Layer>(p));
    contenders.push_back({name, [layer, run] { ((*layer).*run)(); }});
  };
  add("LibTorch, without activation or mask", 0.0, &Layer::by_libtorch);
  add("skipping, p = 0.5 (bar 0.59)", 0.5, &Layer::skip);
  add("skipping, p = 0.25", 0.25, &Layer::skip);
  add("skipping, p = 0.75", 0.75, &Layer::skip);
  add("skipping nothing (not used)", 0.0, &Layer::skip);
  print("The three products of a hidden layer, 1024 x 1024, batch 1024", "ms", 1e-3, 1, contenders,
        contest(contenders, rounds));
}

// --- masking

/// A dropout plugin with one site.
class Masking final : public StepContext {
 public:
  Masking(const std::string& type, const Table& options) : dropout_(type, options) {
    dropout_.plugin().open({.sites = {{.id = "site", .axis = 1, .width = width}}});
    run_scale_.total_steps = 1'000'000;
    event_ = Event::fit_start;
    dropout_.fire(*this);
  }
  void operator()(const Tensor& x) {
    ++step_;
    dropout_.plugin().apply(x, 0, {0.5, RandomStream(1, "site", step_), {.training = true, .step = step_}});
  }

 private:
  test::Subscribed<Dropout> dropout_;
  std::uint64_t step_ = 0;
};

void masking(int rounds) {
  const c10::NoGradGuard untracked;
  const Tensor x = at::randn({rows, width});
  std::vector<Contender> contenders;
  const Table bank = test::table({{"tau", Value(tau)}, {"sigma", Value(std::int64_t{64})}});
  for (const auto& [name, type, options] :
       {std::tuple("standard", "standard", Table()), std::tuple("gyro (bar 1)", "gyro", bank),
        std::tuple("blockwise, where it multiplies (bar 1)", "blockwise", bank)}) {
    const auto dropout = std::make_shared<Masking>(type, options);
    contenders.push_back({name, [dropout, x] { (*dropout)(x); }});
  }
  contenders.push_back({"a product with a number", [x] { at::mul(x, 2.0); }});
  print("Masking 1024 x 1024", "us", 1e-6, 1, contenders, contest(contenders, rounds));
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard::bench;
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  at::set_num_threads(1);
  masking(quick ? 2 : 200);
  products(quick ? 1 : 40);
  for (const char* optimizer : {"sgd", "adamw"}) whole_steps(optimizer, quick ? 1 : 40);
}
