// The loss scaler and gradient clipping against PyTorch (tests/golden/loss_scaler.py).
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <catch2/catch.hpp>
#include <cmath>

#include <trainyard/state.hpp>
#include "core/engine/train/gradients.hpp"
#include "core/engine/train/loss_scaler.hpp"
#include "plugins/golden.hpp"

namespace precision_tests {

using namespace trainyard;
using namespace trainyard::train;
using nlohmann::json;

namespace {

const json& golden() {
  static const json file = test::golden("loss_scaler.json");
  return file;
}

/// Infinity and NaN stand in the file as text.
at::Tensor numbers(const json& list) {
  std::vector<float> values;
  for (const json& each : list)
    values.push_back(each.is_string() ? std::stof(each.get<std::string>()) : each.get<float>());
  return at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::kFloat).clone();
}

std::vector<at::Tensor> tensors(const json& lists) {
  std::vector<at::Tensor> result;
  for (const json& list : lists) result.push_back(numbers(list));
  return result;
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(at::nan_to_num(a, -7.0), at::nan_to_num(b, -7.0));
}

LossScaler::Options options(const json& given) {
  return {given["initial"], given["growth"], given["backoff"], given["interval"]};
}

}  // namespace

TEST_CASE("the loss scaler follows torch.amp.GradScaler bit for bit") {
  for (const json& test_case : golden()["scaler"]) {
    INFO(test_case["name"]);
    LossScaler scaler(options(test_case["options"]));
    int step = 0, skipped = 0;
    for (const json& point : test_case["trace"]) {
      INFO("step " << ++step);
      std::vector<at::Tensor> gradients = tensors(point["given"]);
      const bool finite = scaler.unscale(gradients);
      scaler.update(finite);
      REQUIRE(finite == point["taken"]);
      REQUIRE(scaler.scale() == point["scale"].get<float>());
      skipped += !finite;
      const std::vector<at::Tensor> expected = tensors(point["unscaled"]);
      for (std::size_t i = 0; i < expected.size(); ++i) REQUIRE(same(gradients[i], expected[i]));
    }
    CHECK(skipped > 0);
  }
}

TEST_CASE("a loss scaler that was saved goes on as it would have") {
  LossScaler::Options quick;
  quick.growth_interval = 3;
  LossScaler whole(quick), first(quick), second(quick);
  for (int i = 0; i < 2; ++i) first.update(true);
  State state;
  StateWriter writer(state);
  first.save(writer);
  second.load(StateReader(state));
  for (int i = 0; i < 3; ++i) whole.update(true);
  second.update(true);
  CHECK(second.scale() == 131072.0F);
  CHECK(whole.scale() == second.scale());
}

TEST_CASE("gradients are clipped as torch.nn.utils does") {
  for (const json& test_case : golden()["clip"]) {
    INFO(test_case["type"] << " " << test_case["max"]);
    using Type = config::GradClip::Type;
    const Type type = test_case["type"] == "norm" ? Type::norm : Type::value;
    std::vector<at::Tensor> gradients = tensors(test_case["given"]);
    const at::Tensor norm = clip(gradients, {type, test_case["max"]});
    const std::vector<at::Tensor> expected = tensors(test_case["clipped"]);
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(at::allclose(gradients[i], expected[i], 1e-6, 0));
    REQUIRE(norm.defined() == (type == Type::norm));
    if (norm.defined()) CHECK(norm.item<double>() == Approx(test_case["norm"].get<double>()).epsilon(1e-6));
  }
  std::vector<at::Tensor> none;
  CHECK_FALSE(clip(none, {}).defined());
}

namespace {

/// Rows of a table that a batch of ids touched, some of them twice.
at::Tensor sparse_gradient(at::Tensor& table, const std::vector<std::int64_t>& ids) {
  const at::Tensor rows = at::embedding(table, at::tensor(ids, at::kLong), -1, false, /*sparse=*/true);
  rows.pow(3).sum().backward();
  return table.grad();
}

}  // namespace

TEST_CASE("sparse gradients of several micro-batches are clipped and unscaled as dense ones are") {
  at::Tensor dense = at::arange(1, 13, at::kFloat).view({4, 3}).div(10).requires_grad_();
  std::vector<at::Tensor> tables = {dense.detach().clone().requires_grad_()};
  for (const std::vector<std::int64_t>& ids : {std::vector<std::int64_t>{2, 0, 2}, {2, 3}}) {
    sparse_gradient(tables[0], ids);
    at::embedding(dense, at::tensor(ids, at::kLong)).pow(3).sum().backward();
  }
  const at::NoGradGuard no_grad;
  REQUIRE(tables[0].grad().is_sparse());
  REQUIRE_FALSE(tables[0].grad().is_coalesced());
  coalesce_gradients(tables);
  CHECK(tables[0].grad()._values().size(0) == 3);
  std::vector<at::Tensor> sparse = gradients_of(tables), whole = {dense.grad()};
  CHECK(LossScaler(LossScaler::Options{}).unscale(sparse));
  CHECK(LossScaler(LossScaler::Options{}).unscale(whole));
  CHECK(at::allclose(tables[0].grad().to_dense(), dense.grad(), 1e-6));
  using Type = config::GradClip::Type;
  const double norm = clip(sparse, {Type::norm, 1e-6}).item<double>();
  CHECK(norm == Approx(clip(whole, {Type::norm, 1e-6}).item<double>()).epsilon(1e-6));
  CHECK(norm > 1e-6);
  CHECK(at::allclose(tables[0].grad().to_dense(), dense.grad(), 1e-5, 1e-12));
  clip(sparse, {Type::value, 1e-8});
  clip(whole, {Type::value, 1e-8});
  CHECK(at::equal(tables[0].grad().to_dense(), dense.grad()));
  tables[0].mutable_grad()._values().fill_(std::numeric_limits<float>::infinity());
  CHECK_FALSE(LossScaler(LossScaler::Options{}).unscale(sparse));
}

}  // namespace precision_tests
