// Optimizers whose averages stand in 8 bits: against NumPy from the paper's definitions (tests/golden/byte_states.py), and what
// their state is in checkpoints and swaps.
#include <cmath>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/mixins/plain_state.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/state.hpp>

#include "golden.hpp"
#include "plugins/optimizer/byte_blocks.hpp"
#include "tests/support/plugin.hpp"

namespace byte_optimizer_tests {

using namespace trainyard;
using nlohmann::json;

namespace {

const json& golden_file() {
  static const json file = test::golden("byte_states.json");
  return file;
}

/// The problem of tests/golden/byte_states.py.
struct Problem {
  at::Tensor goal, scale;
  NamedTensor weight;
  int step = 0;

  explicit Problem(at::ScalarType dtype = at::kFloat) {
    const at::Tensor i = at::arange(golden_file()["count"].get<int>(), at::kDouble);
    goal = at::cos(1.1 * i).to(at::kFloat).to(dtype);
    scale = at::exp(5.0 * at::sin(0.7 * i)).to(at::kFloat).to(dtype);
    weight = {"w", at::sin(0.37 * i).to(at::kFloat).to(dtype).set_requires_grad(true)};
  }

  void advance(Optimizer& optimizer) {
    ++step;
    weight.tensor.mutable_grad() = scale * (weight.tensor.detach() - goal) * (1 + step % 3);
    optimizer.step();
  }
};

std::unique_ptr<Optimizer> open(const std::string& type, const Table& options, const Problem& problem) {
  auto optimizer = test::make<Optimizer>(type, options);
  optimizer->open(make_groups({problem.weight}, optimizer->common));
  return optimizer;
}

State saved(const Optimizer& optimizer) {
  State state;
  state.owner = "optimizer";
  StateWriter writer(state);
  optimizer.save(writer);
  return state;
}

State plain(const Optimizer& optimizer) {
  State state;
  state.owner = "optimizer";
  StateWriter writer(state);
  dynamic_cast<const PlainState&>(optimizer).save_plain(writer);
  return state;
}

at::Tensor every(const at::Tensor& tensor) {
  return tensor.detach().slice(0, 0, tensor.size(0), golden_file()["every"].get<int>()).to(at::kDouble);
}

at::Tensor listed(const json& values) {
  return test::tensor(values, {static_cast<std::int64_t>(values.size())});
}

const Table adamw8 = test::table({{"lr", 0.01}, {"weight_decay", 0.1}});

}  // namespace

TEST_CASE("the maps are those of the paper") {
  for (const auto& [key, map] :
       {std::pair{"signed", &kernels::signed_map()}, {"unsigned", &kernels::unsigned_map()}}) {
    const json& expected = golden_file()[key];
    REQUIRE(map->count == static_cast<int>(expected.size()));
    for (int i = 0; i < map->count; ++i) {
      const auto number = expected[i].get<float>();
      CHECK(std::abs(map->magnitude[i] - number) <= 1e-5f * number);
    }
  }
}

TEST_CASE("optimizers with averages in 8 bits follow the paper's definitions") {
  for (const json& test_case : golden_file()["cases"]) {
    INFO(test_case["plugin"] << " " << test_case["options"]);
    Problem problem;
    const auto optimizer =
        open(test_case["plugin"].get<std::string>(), test::options(test_case["options"]), problem);
    for (int i = 0; i < golden_file()["steps"].get<int>(); ++i) problem.advance(*optimizer);
    CHECK(test::distance(every(problem.weight.tensor), listed(test_case["weights"])) < 2e-4);
    const State state = saved(*optimizer);
    for (const auto& [name, slot] : test_case["slots"].items()) {
      const at::Tensor apart = (every(state.tensors.at(name + "/w")) - listed(slot["codes"])).abs();
      CHECK(apart.max().item<double>() <= 1.0);  // a number in the middle of two, rounded otherwise
      CHECK(apart.sum().item<double>() < 0.005 * static_cast<double>(apart.numel()));
      const at::Tensor scales = listed(slot["scales"]);
      CHECK(((state.tensors.at(name + "_scale/w") - scales) / scales).abs().max().item<double>() < 1e-4);
    }
  }
}

TEST_CASE("state in 8 bits is a code a value and a scale a block, and small parameters keep theirs whole") {
  const NamedTensor large{"large", at::zeros({64, 65}).set_requires_grad(true)};
  const NamedTensor small{"small", at::zeros({4095}).set_requires_grad(true)};
  const auto optimizer = test::make<Optimizer>("adamw8", adamw8);
  optimizer->open(make_groups({large, small}, optimizer->common));
  const State state = saved(*optimizer);
  const auto is = [&](const char* name, at::ScalarType type, at::IntArrayRef sizes) {
    INFO(name);
    CHECK(state.tensors.at(name).scalar_type() == type);
    CHECK(state.tensors.at(name).sizes() == sizes);
  };
  is("exp_avg/large", at::kChar, {64, 65});
  is("exp_avg_sq/large", at::kByte, {64, 65});
  is("exp_avg_scale/large", at::kFloat, {17});
  is("exp_avg_sq_scale/large", at::kFloat, {17});
  is("exp_avg/small", at::kFloat, {4095});
  is("exp_avg_sq_scale/small", at::kFloat, {0});
}

TEST_CASE(
    "state in 8 bits saved and loaded in the middle goes on to the same bits, on one thread or several") {
  for (const auto& [type, options] : {std::pair{"adamw8", adamw8}, {"sgd8", test::table({{"lr", 1e-4}})}})
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      Problem straight(dtype), broken(dtype);
      const auto whole = open(type, options, straight);
      auto part = open(type, options, broken);
      for (int i = 0; i < 8; ++i) {
        straight.advance(*whole);
        at::set_num_threads(1 + i % 3);
        if (i == 4) {
          const State own = saved(*part), handed = plain(*part);
          part = open(type, options, broken);
          part->load(StateReader(own));
          CHECK(digest(saved(*part)) == digest(own));
          part = open(type, options, broken);
          dynamic_cast<PlainState&>(*part).load_plain(StateReader(handed));
          CHECK(digest(saved(*part)) == digest(own));
        }
        broken.advance(*part);
        at::set_num_threads(1);
      }
      CHECK(at::equal(straight.weight.tensor, broken.weight.tensor));
    }
}

TEST_CASE("double parameters and float ones take nearly the same steps") {
  Problem floats, doubles(at::kDouble);
  const auto a = open("adamw8", adamw8, floats), b = open("adamw8", adamw8, doubles);
  for (int i = 0; i < 8; ++i) floats.advance(*a), doubles.advance(*b);
  CHECK(test::distance(floats.weight.tensor, doubles.weight.tensor) < 1e-3);
}

TEST_CASE("AdamW's averages go into 8 bits and back as near as the map allows") {
  Problem first, second;
  const auto exact = open("adamw", adamw8, first), bytes = open("adamw8", adamw8, second);
  for (int i = 0; i < 5; ++i) first.advance(*exact);
  dynamic_cast<PlainState&>(*bytes).load_plain(StateReader(saved(*exact)));
  const State before = saved(*exact), after = plain(*bytes);
  CHECK(StateReader(after).integer("step/w") == 5);
  for (const char* name : {"exp_avg/w", "exp_avg_sq/w"}) {
    const at::Tensor& values = before.tensors.at(name);
    const at::Tensor error = (after.tensors.at(name) - values).abs();
    const at::Tensor largest = at::constant_pad_nd(values.abs(), {0, 120}).view({-1, 256}).amax(1, true);
    const at::Tensor blocks = at::constant_pad_nd(error, {0, 120}).view({-1, 256});
    CHECK((blocks / largest).max().item<double>() < 0.012);                        // half of the widest gap
    CHECK((error / values.abs().clamp_min(1e-30)).median().item<double>() < 0.2);  // over seven decades
  }
  exact->load(StateReader(after));  // an adamw takes them
  CHECK(digest(saved(*exact)) == digest(after));
}

TEST_CASE("a square that is small beside its block's largest makes no long step") {
  const NamedTensor weight{"w", at::zeros({4096}).set_requires_grad(true)};
  const auto optimizer = test::make<Optimizer>("adamw8", test::table({{"lr", 0.001}}));
  optimizer->open(make_groups({weight}, optimizer->common));
  for (int i = 0; i < 10; ++i) {
    at::Tensor gradient = at::zeros({4096});
    gradient[0] = 1.0;
    if (i < 5)
      gradient[1] = 1e-4;  // its square is a hundred-millionth of the largest, and then it has no gradient
    weight.tensor.mutable_grad() = gradient;
    optimizer->step();
  }
  CHECK(std::abs(weight.tensor[1].item<double>()) < 0.02);
}

TEST_CASE("devices pack and unpack to the bits of the kernel") {
  at::manual_seed(3);
  for (const kernels::ByteMap* map : {&kernels::signed_map(), &kernels::unsigned_map()}) {
    at::Tensor values = at::randn({700, 3}) * at::pow(10.0, -9.0 * at::rand({700, 3}));
    if (!map->has_sign) values = values.abs();
    values.slice(0, 200, 400).zero_();
    const optimizers::ByteBlocks by_kernel = optimizers::make_byte_blocks(values, map->has_sign),
                                 by_aten = optimizers::make_byte_blocks(values, map->has_sign);
    optimizers::pack(values, by_kernel, *map);
    optimizers::pack_by_aten(values, by_aten, *map);
    CHECK(at::equal(by_kernel.codes, by_aten.codes));
    CHECK(at::equal(by_kernel.scales, by_aten.scales));
    CHECK(at::equal(optimizers::unpacked(by_kernel, *map), optimizers::unpacked_by_aten(by_aten, *map)));
  }
}

TEST_CASE("sparse gradients and Nesterov's form with dampening are refused") {
  using Catch::Contains;
  Problem problem;
  const auto optimizer = open("sgd8", test::table({{"lr", 0.1}}), problem);
  problem.weight.tensor.mutable_grad() =
      at::sparse_coo_tensor(at::zeros({1, 1}, at::kLong), at::ones({1}), {5000}).coalesce();
  CHECK_THROWS_WITH(optimizer->step(), Contains("sparse gradient") && Contains("w"));
  CHECK_THROWS_WITH(open("sgd8", test::table({{"lr", 0.1}, {"nesterov", true}, {"dampening", 0.1}}), problem),
                    Contains("dampening = 0"));
}

}  // namespace byte_optimizer_tests
