#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/dropout.hpp>

#include "tests/support/plugin.hpp"

namespace dropout_tests {

using namespace trainyard;

namespace {

std::unique_ptr<Dropout> standard(double p) {
  auto dropout = test::make<Dropout>("standard", test::table({{"p", p}}));
  dropout->open({.sites = {{.id = "fc.dropout", .axis = 1, .width = 64}}});
  return dropout;
}

at::Tensor apply(Dropout& dropout, const at::Tensor& x, const RandomStream& random) {
  return dropout.apply(x, 0, {dropout.common.p, random, {.training = true}});
}

const RandomStream stream(17, "dropout/fc.dropout");

}  // namespace

TEST_CASE("elements are kept at rate 1 - p and scaled by its inverse") {
  const at::Tensor x = at::ones({1000, 64});
  for (const double p : {0.1, 0.5, 0.9}) {
    const at::Tensor y = apply(*standard(p), x, stream.at(3));
    const at::Tensor kept = y.ne(0);
    CHECK(at::equal(y.masked_select(kept),
                    at::full({kept.sum().item<std::int64_t>()}, static_cast<float>(1.0 / (1.0 - p)))));
    // Within five standard deviations, for all elements, and for the columns' and rows' means.
    const double deviation = std::sqrt(p * (1 - p));
    CHECK(std::abs(kept.to(at::kDouble).mean().item<double>() - (1 - p)) <
          5 * deviation / std::sqrt(64000.0));
    CHECK(kept.to(at::kDouble).mean(0).sub(1 - p).abs().max().item<double>() <
          5 * deviation / std::sqrt(1000.0));
    CHECK(kept.to(at::kDouble).mean(1).sub(1 - p).abs().max().item<double>() <
          5 * deviation / std::sqrt(64.0));
  }
}

TEST_CASE("the same stream draws the same mask, another step or lane another") {
  const at::Tensor x = at::randn({32, 64});
  const auto dropout = standard(0.5), again = standard(0.5);
  const at::Tensor y = apply(*dropout, x, stream.at(3, 1));
  CHECK(at::equal(y, apply(*dropout, x, stream.at(3, 1))));
  CHECK(at::equal(y, apply(*again, x, stream.at(3, 1))));
  CHECK_FALSE(at::equal(y, apply(*dropout, x, stream.at(4, 1))));
  CHECK_FALSE(at::equal(y, apply(*dropout, x, stream.at(3, 2))));
}

TEST_CASE("the gradient passes where the element did, with its scale; the type stays") {
  const at::Tensor x = at::randn({32, 64}).requires_grad_();
  const auto dropout = standard(0.25);
  const at::Tensor y = apply(*dropout, x, stream);
  y.sum().backward();
  CHECK(at::equal(x.grad().ne(0), y.ne(0)));
  CHECK(at::allclose(x.grad() * x, y));
  for (const auto dtype : {at::kBFloat16, at::kDouble}) {
    const at::Tensor other = apply(*dropout, x.detach().to(dtype), stream);
    CHECK(other.scalar_type() == dtype);
    CHECK(at::equal(other.ne(0), y.ne(0)));
  }
}

}  // namespace dropout_tests
