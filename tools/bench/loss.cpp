// Losses and metrics of the CPU against the operators of ATen that they stand for, forward and backward, and
// a step of the host with label smoothing against one without: MLP 64-128-10, batch 64.
//   trainyard bench loss [--quick] [--threads N]

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstring>
#include <string>
#include <vector>

#include <trainyard/loss.hpp>
#include <trainyard/metric.hpp>

#include "support/plugin.hpp"
#include "tools/bench/contest.hpp"
#include "tools/bench/ours.hpp"

namespace trainyard::bench {
namespace {

using at::Tensor;

struct Length {
  int rounds, threads;
  bool quick;
};

Batch with_target(const Tensor& target) {
  Batch batch;
  batch.target = target;
  batch.indices.resize(static_cast<std::size_t>(target.size(0)));
  batch.weight = static_cast<double>(target.numel());
  return batch;
}

/// Of two contenders: what the second takes of the time of the first. One thread's is CPU time.
void print_ratio(const std::string& what, const std::vector<Contender>& contenders, int calls,
                 const Length& length) {
  // Long calls, one a chunk, are told apart in fewer rounds.
  const std::vector<Times> times = contest(contenders, calls > 1 ? length.rounds : (length.rounds + 4) / 5);
  const auto& seconds = [&](std::size_t i) {
    return percentile(length.threads == 1 ? times[i].cpu : times[i].wall, 0.2) / calls * 1e6;
  };
  std::printf("  %-44s %11.2f %11.2f   %7.3f\n", what.c_str(), seconds(0), seconds(1),
              seconds(1) / seconds(0));
  std::fflush(stdout);
}

/// As many calls as make a chunk of about a millisecond.
int calls_of(std::int64_t elements) {
  return static_cast<int>(std::clamp<std::int64_t>(1'000'000 / (elements + 2000), 1, 100));
}

template <class Forward>
std::function<void()> with_backward(int calls, Tensor output, const Forward& forward) {
  return [calls, output = output.clone().requires_grad_(), forward, root = at::ones({})]() mutable {
    for (int i = 0; i < calls; ++i) {
      output.mutable_grad().reset();
      forward(output).backward(root);
    }
  };
}

void cross_entropy(std::int64_t rows, std::int64_t classes, double smoothing, const Length& length) {
  const Tensor output = at::randn({rows, classes}), target = at::randint(classes, {rows}, at::kLong);
  const auto loss = test::make<Loss>("cross_entropy", test::table({{"label_smoothing", smoothing}}));
  const Batch batch = with_target(target);
  const int calls = calls_of(rows * classes);
  print_ratio(
      "cross_entropy " + std::to_string(rows) + " x " + std::to_string(classes) +
          (smoothing > 0.0 ? ", smoothing" : ""),
      {{"torch", with_backward(calls, output,
                               [&](const Tensor& x) {
                                 return at::cross_entropy_loss(x, target, {}, at::Reduction::Mean, -100,
                                                               smoothing);
                               })},
       {"ours", with_backward(calls, output, [&](const Tensor& x) { return loss->forward(x, batch); })}},
      calls, length);
}

void binary(std::int64_t size, const Length& length) {
  const Tensor output = at::randn({size}), target = at::rand({size}).round();
  const auto loss = test::make<Loss>("bce_with_logits");
  const Batch batch = with_target(target);
  const int calls = calls_of(size);
  print_ratio(
      "bce_with_logits " + std::to_string(size),
      {{"torch", with_backward(calls, output,
                               [&](const Tensor& x) {
                                 return at::binary_cross_entropy_with_logits(x, target, {}, {},
                                                                             at::Reduction::Mean);
                               })},
       {"ours", with_backward(calls, output, [&](const Tensor& x) { return loss->forward(x, batch); })}},
      calls, length);
}

/// `operators`: what the metric did by operators, added to a sum.
void metric(const std::string& name, const Table& options, const Tensor& output, const Tensor& target,
            const std::function<Tensor()>& operators, const Length& length) {
  const at::NoGradGuard no_grad;
  const auto ours = test::make<Metric>(name, options);
  ours->reset();
  const Batch batch = with_target(target);
  const Tensor loss = at::rand({});
  const int calls = calls_of(output.numel());
  Tensor sum = at::zeros({}, at::kDouble);
  std::string shape;
  for (const std::int64_t size : output.sizes())
    shape += (shape.empty() ? " " : " x ") + std::to_string(size);
  print_ratio(name + shape,
              {{"torch",
                [&] {
                  for (int i = 0; i < calls; ++i) sum.add_(operators());
                }},
               {"ours",
                [&] {
                  for (int i = 0; i < calls; ++i) ours->update(output, loss, batch);
                }}},
              calls, length);
}

void metrics(std::int64_t rows, std::int64_t classes, const Length& length) {
  const Tensor output = at::randn({rows, classes});
  // Half of the targets are hits: looking for a larger score ends early where one is near.
  const Tensor target = at::where(at::arange(rows).remainder(2).eq(0), output.argmax(1),
                                  at::randint(classes, {rows}, at::kLong));
  metric(
      "accuracy", {}, output, target, [&] { return output.argmax(-1).eq(target).sum(); }, length);
  if (classes > 5)
    metric(
        "top_k", {}, output, target,
        [&] {
          return std::get<1>(at::topk(output, 5, -1, true, false)).eq(target.unsqueeze(-1)).any(-1).sum();
        },
        length);
}

void absolute_error(std::int64_t size, const Length& length) {
  const Tensor output = at::randn({size}), target = at::randn({size});
  metric(
      "mae", {}, output, target, [&] { return output.sub(target).abs_().sum(at::kDouble); }, length);
}

void steps(const Length& length) {
  const int count = length.quick ? 20 : 100;
  Ours plain({}), again({}), smoothed({"loss.label_smoothing=0.05"}),
      weighted({"loss.class_weights=[1,1,1,1,1,1,1,1,1,2]"});
  const std::vector<Contender> contenders = {
      {"step of the host", [&] { plain(count); }},
      {"once more (noise)", [&] { again(count); }},
      {"label_smoothing = 0.05 (bar 1.05)", [&] { smoothed(count); }},
      {"class_weights", [&] { weighted(count); }},
  };
  print("MLP 64-128-10, batch 64, adamw, one thread", "us a step", 1e-6, count, contenders,
        contest(contenders, length.rounds));
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard::bench;
  Length length{.rounds = 60, .threads = 1, .quick = false};
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) length.quick = true;
    if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc) length.threads = std::atoi(argv[++i]);
  }
  if (length.quick) length.rounds = 3;
  at::set_num_threads(length.threads);
  at::manual_seed(1);
  std::printf("%d thread(s), %d rounds in turn\n  %-44s %11s %11s   %7s   (bar 1)\n", length.threads,
              length.rounds, "", "torch, us", "ours, us", "ratio");
  const std::vector<std::int64_t> widths =
      length.quick ? std::vector<std::int64_t>{10, 1000} : std::vector<std::int64_t>{2, 10, 100, 1000, 50257};
  for (const std::int64_t classes : widths)
    for (const std::int64_t rows : {8, 128, 4096}) {
      const std::int64_t most = std::min<std::int64_t>(rows, 26'000'000 / classes);  // 100 MB
      for (const double smoothing : {0.0, 0.05}) cross_entropy(most, classes, smoothing, length);
      metrics(most, classes, length);
    }
  for (const std::int64_t size : {8, 128, 4096, 1'000'000}) {
    binary(size, length);
    absolute_error(size, length);
  }
  if (length.threads == 1) steps({.rounds = length.quick ? 3 : 150, .threads = 1, .quick = length.quick});
}
