// An update of a large parameter by optimizers whose averages stand in 8 bits, beside those that they are like.
//   trainyard bench optimizer   CPU time of an update of 4M floats, and bytes of the state
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <trainyard/optimizer.hpp>
#include <trainyard/state.hpp>

#include "tests/support/plugin.hpp"
#include "tools/bench/arguments.hpp"
#include "tools/bench/contest.hpp"

namespace trainyard::bench {
namespace {

struct Trained {
  NamedTensor parameter;
  std::unique_ptr<Optimizer> optimizer;

  Trained(const std::string& type, const Table& options, std::int64_t values)
      : parameter{"w", at::zeros({values}).set_requires_grad(true)},
        optimizer(test::make<Optimizer>(type, options)) {
    parameter.tensor.mutable_grad() = at::randn({values});
    optimizer->open(make_groups({parameter}, optimizer->common));
  }

  std::int64_t state_bytes() const {
    State state;
    StateWriter writer(state);
    optimizer->save(writer);
    std::int64_t bytes = 0;
    for (const auto& [name, tensor] : state.tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
    return bytes;
  }
};

void compare(const char* whole, const char* packed, const Table& options, bool quick) {
  const std::int64_t values = quick ? 1 << 18 : 4 << 20;
  Trained a(whole, options, values), b(packed, options, values);
  const std::vector<Times> times = contest(
      {{whole, [&] { a.optimizer->step(); }}, {packed, [&] { b.optimizer->step(); }}}, quick ? 3 : 60);
  for (const auto& [name, trained, time] : {std::tuple{whole, &a, &times[0]}, {packed, &b, &times[1]}})
    std::printf("  %-8s %8.3f ns a value %8.3f bytes of state a value %8.2f x\n", name,
                1e9 * percentile(time->cpu, 0.2) / static_cast<double>(values),
                static_cast<double>(trained->state_bytes()) / static_cast<double>(values),
                ratio(*time, times[0]));
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using trainyard::bench::compare;
  const trainyard::bench::Arguments arguments(argc, argv);
  compare("adamw", "adamw8", trainyard::test::table({{"lr", 1e-4}, {"weight_decay", 0.01}}), arguments.quick);
  compare("sgd", "sgd8", trainyard::test::table({{"lr", 1e-4}, {"momentum", 0.9}}), arguments.quick);
}
