#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/state.hpp>

namespace state_tests {

using namespace trainyard;
using Catch::Contains;

namespace {

State example() {
  State state{.owner = "optimizer/adamw", .version = "1.2.0"};
  StateWriter writer(state);
  writer.scalar("step", std::int64_t{7});
  writer.scalar("decay", 0.5);
  writer.scalar("warm", true);
  writer.scalar("mode", std::string("max"));
  writer.tensor("w", at::arange(6, at::kFloat).view({2, 3}));
  return state;
}

}  // namespace

TEST_CASE("a reader gives back what a writer wrote, tensors by handle") {
  State state;
  const at::Tensor tensor = at::ones({2});
  StateWriter(state).tensor("w", tensor);
  CHECK(StateReader(state).tensor("w").is_same(tensor));

  const State written = example();
  const StateReader reader(written);
  CHECK(reader.version() == "1.2.0");
  CHECK(reader.integer("step") == 7);
  CHECK(reader.number("decay") == 0.5);
  CHECK(reader.boolean("warm"));
  CHECK(reader.text("mode") == "max");
  CHECK(reader.has_scalar("step"));
  CHECK_FALSE(reader.has_scalar("w"));
  CHECK(reader.has_tensor("w"));
}

TEST_CASE("what is absent, of another type or written twice is named") {
  State state = example();
  const StateReader reader(state);
  CHECK_THROWS_AS(reader.integer("steps"), PluginError);
  CHECK_THROWS_WITH(reader.integer("steps"), Contains("optimizer/adamw") && Contains("\"steps\" is missing"));
  CHECK_THROWS_WITH(reader.number("step"), Contains("\"step\" is an integer, not a number"));
  CHECK_THROWS_WITH(reader.text("warm"), Contains("\"warm\" is a boolean, not a text"));
  CHECK_THROWS_WITH(reader.tensor("step"), Contains("\"step\" is missing"));
  StateWriter writer(state);
  CHECK_THROWS_WITH(writer.scalar("step", 1.0), Contains("\"step\" is written twice"));
  CHECK_THROWS_WITH(writer.tensor("w", at::zeros({1})), Contains("\"w\" is written twice"));
  CHECK_THROWS_WITH(writer.tensor("v", at::Tensor()), Contains("undefined"));
}

TEST_CASE("the digest of a tensor is SHA-256 over dtype, shape and bytes") {
  // By Python's hashlib: 5, "Float", 1 dimension, size 2 (as 64-bit integers), 1.0f, 2.0f.
  CHECK(digest(at::tensor({1.0f, 2.0f})) ==
        "ed489b03894927243d06d8959d1e6143dad1dfedf1259cb35ef9ce6a1778a0bf");
  const at::Tensor a = at::arange(6, at::kFloat).view({2, 3});
  CHECK(digest(a) == digest(a.clone()));
  CHECK(digest(a) == digest(a.t().contiguous().t()));  // strides do not matter
  CHECK(digest(a) != digest(a.view({3, 2})));
  CHECK(digest(a) != digest(a.view(at::kInt)));
  CHECK(digest(a) != digest(a + 1e-6));
  CHECK(digest(at::zeros({0})) != digest(at::zeros({0, 1})));
  CHECK(digest(a.clone().set_requires_grad(true)) == digest(a));
}

TEST_CASE("the digest of a state sees every name and value, not the owner") {
  const State state = example();
  const std::string whole = digest(state);
  CHECK(whole.size() == 64);
  State other = state;
  other.owner = "optimizer/other";
  other.version = "2";
  CHECK(digest(other) == whole);
  other.scalars["step"] = std::int64_t{8};
  CHECK(digest(other) != whole);
  other = state;
  other.scalars["step"] = 7.0;
  CHECK(digest(other) != whole);
  other = state;
  other.scalars.erase("warm");
  other.scalars["warn"] = true;
  CHECK(digest(other) != whole);
  other = state;
  other.tensors["w"] = other.tensors["w"] * 2;
  CHECK(digest(other) != whole);
  other = state;
  other.tensors["v"] = at::zeros({0});
  CHECK(digest(other) != whole);
}

}  // namespace state_tests
