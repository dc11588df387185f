#include <ATen/ops/zeros.h>
#include <catch2/catch.hpp>

#include <trainyard/optimizer.hpp>

namespace optimizer_tests {

using namespace trainyard;
using Names = std::vector<std::string>;
using Catch::Contains;

namespace {

std::vector<NamedTensor> model() {
  return {{"embed.weight", at::zeros({5, 2})},  {"layer1.0.fc.weight", at::zeros({2, 2})},
          {"layer1.0.fc.bias", at::zeros({2})}, {"layer1.0.norm.weight", at::zeros({2})},
          {"head.weight", at::zeros({3, 2})},   {"head.bias", at::zeros({3})}};
}

/// w <- w - lr (grad + decay w), counted; step_group is the SDK's.
class Plain final : public Optimizer {
 public:
  void step() override {
    if (fails) throw std::runtime_error("no step");
    for (const ParamGroup& group : groups_)
      for (const at::Tensor& param : group.params)
        if (param.grad().defined()) param.sub_((param.grad() + param * group.weight_decay) * group.lr);
  }
  bool fails = false;
};

}  // namespace

TEST_CASE("a group by itself is a step without the gradients of the others") {
  Plain whole, parts;
  for (Plain* each : {&whole, &parts}) {
    each->open(make_groups(model(), {.lr = 0.1,
                                     .weight_decay = 0.01,
                                     .decay = "matrices",
                                     .groups = {{.match = {"head.*"}, .lr = 0.5}}}));
    for (const ParamGroup& group : each->groups())
      for (std::size_t i = 0; i < group.params.size(); ++i) {
        group.params[i].fill_(1.0);
        if (i > 0)
          group.params[i].mutable_grad() = at::full_like(group.params[i], 0.25);  // the first has none
      }
  }
  REQUIRE(parts.groups().size() == 4);
  const at::Tensor& other = parts.groups()[0].params[1];
  const at::Tensor gradient = other.grad(), before = other.clone();
  parts.step_group(1);
  CHECK(at::equal(other, before));
  CHECK(other.grad().is_same(gradient));
  for (const std::size_t group : {3, 0, 2}) parts.step_group(group);
  whole.step();
  for (std::size_t g = 0; g < 4; ++g)
    for (std::size_t i = 0; i < whole.groups()[g].params.size(); ++i)
      CHECK(at::equal(parts.groups()[g].params[i], whole.groups()[g].params[i]));
  CHECK_FALSE(at::equal(other, before));

  parts.fails = true;
  CHECK_THROWS_WITH(parts.step_group(1), "no step");
  CHECK(other.grad().is_same(gradient));
  CHECK_THROWS_AS(parts.step_group(4), std::out_of_range);
}

TEST_CASE("without rules all parameters are one group, in the order of the model") {
  const auto groups = make_groups(model(), {.lr = 0.1, .weight_decay = 0.01});
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].names == Names{"embed.weight", "layer1.0.fc.weight", "layer1.0.fc.bias",
                                 "layer1.0.norm.weight", "head.weight", "head.bias"});
  CHECK(groups[0].params.size() == 6);
  CHECK(groups[0].base_lr == 0.1);
  CHECK(groups[0].lr == 0.1);
  CHECK(groups[0].weight_decay == 0.01);
}

TEST_CASE("decay = matrices leaves vectors without weight decay") {
  const auto groups = make_groups(model(), {.lr = 0.1, .weight_decay = 0.01, .decay = "matrices"});
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].names == Names{"embed.weight", "layer1.0.fc.weight", "head.weight"});
  CHECK(groups[0].weight_decay == 0.01);
  CHECK(groups[1].names == Names{"layer1.0.fc.bias", "layer1.0.norm.weight", "head.bias"});
  CHECK(groups[1].weight_decay == 0.0);
}

TEST_CASE("the first rule that matches wins, and equal values share a group") {
  const auto groups = make_groups(model(), {.lr = 0.1,
                                            .weight_decay = 0.01,
                                            .groups = {{.match = {"head.*"}, .lr = 0.5},
                                                       {.match = {"*.bias", "*.norm.*"}, .weight_decay = 0.0},
                                                       {.match = {"embed*"}, .lr_factor = 5.0}}});
  REQUIRE(groups.size() == 3);
  CHECK(groups[0].names == Names{"embed.weight", "head.weight", "head.bias"});  // 5 x 0.1 is 0.5
  CHECK(groups[0].base_lr == 0.5);
  CHECK(groups[0].weight_decay == 0.01);
  CHECK(groups[1].names == Names{"layer1.0.fc.weight"});
  CHECK(groups[2].names == Names{"layer1.0.fc.bias", "layer1.0.norm.weight"});
  CHECK(groups[2].base_lr == 0.1);
  CHECK(groups[2].weight_decay == 0.0);
}

TEST_CASE("a rule overrides decay = matrices") {
  const auto groups = make_groups(model(), {.lr = 0.1,
                                            .weight_decay = 0.01,
                                            .decay = "matrices",
                                            .groups = {{.match = {"head.bias"}, .weight_decay = 0.5}}});
  REQUIRE(groups.size() == 3);
  CHECK(groups[2].names == Names{"head.bias"});
  CHECK(groups[2].weight_decay == 0.5);
}

TEST_CASE("patterns: * is any run, ? any one character, the rest is literal") {
  const auto matched = [](const char* pattern) {
    Names names;
    const OptimizerCommon common{.lr = 0.1, .groups = {{.match = {pattern}, .lr = 0.7}}};
    for (const ParamGroup& group : make_groups(model(), common))
      if (group.base_lr == 0.7) names = group.names;
    return names;
  };
  CHECK(matched("*").size() == 6);
  CHECK(matched("head.????").size() == 1);
  CHECK(matched("head.*").size() == 2);
  CHECK(matched("*.weight").size() == 4);
  CHECK(matched("layer?.*.w*t") == Names{"layer1.0.fc.weight", "layer1.0.norm.weight"});
  CHECK(matched("*1*0*c*s*") == Names{"layer1.0.fc.bias"});
  CHECK(matched("head.bias*") == Names{"head.bias"});
  CHECK(matched("*d.**s") == Names{"head.bias"});
  for (const char* pattern : {"head", "?ead.bia", "HEAD.*", "head.bias?", ".*", ""})
    CHECK_THROWS_AS(matched(pattern), ConfigError);
}

TEST_CASE("a rule without effect is refused with what it could have matched") {
  CHECK_THROWS_WITH(
      make_groups(model(), {.lr = 0.1, .groups = {{.match = {"*.bais", "x"}, .weight_decay = 0.0}}}),
      Contains("groups[0]") && Contains("\"*.bais\", \"x\"") && Contains("matches no parameter") &&
          Contains("head.bias"));
  CHECK_THROWS_WITH(make_groups(model(), {.lr = 0.1,
                                          .groups = {{.match = {"*.bias"}, .weight_decay = 0.0},
                                                     {.match = {"head.bias"}, .lr = 1.0}}}),
                    Contains("groups[1]") && Contains("earlier rules"));
  CHECK_THROWS_WITH(
      make_groups(model(), {.lr = 0.1, .groups = {{.match = {"*"}, .lr = 1.0, .lr_factor = 2.0}}}),
      Contains("both lr and lr_factor"));
}

}  // namespace optimizer_tests
