// The reduction that CUDA devices compute (kernels/cuda/tally.hpp) gives the numbers that the CPU's does.
#include <random>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/statistics.hpp>

#include "kernels/statistics_oracle.hpp"
#include "support/host_tally.hpp"

namespace tally_tests {

using namespace trainyard;
using kernels::cuda::Dtype;

TEST_CASE("a tensor has the same numbers on a CUDA device and on the CPU") {
  at::manual_seed(11);
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    at::Tensor x = at::randn({static_cast<std::int64_t>(random() % (i % 10 == 0 ? 100000 : 3000))});
    if (i % 3 == 1) x = at::relu(x);
    if (i % 7 == 1) x = x * 1e-3 + 5.0;
    if (i % 5 == 1) x = x * 1e20;
    if (i % 11 == 1 && x.numel() > 2) x[x.numel() / 2] = i % 2 == 0 ? test::infinity : test::not_a_number;
    INFO("tensor " << i << " of " << x.numel());
    test::check_same(statistics(x), test::tallied(x.const_data_ptr<float>(), x.numel(), Dtype::float32));
    const at::Tensor y = x.to(at::kDouble) * 1.1;
    test::check_same(statistics(y), test::tallied(y.const_data_ptr<double>(), y.numel(), Dtype::float64));
  }
}

}  // namespace tally_tests
