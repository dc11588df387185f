#include <filesystem>
#include <set>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/optimizer.hpp>
#include <trainyard/state.hpp>

#include "golden.hpp"
#include "tests/support/plugin.hpp"

namespace optimizer_tests {

using namespace trainyard;
using nlohmann::json;

namespace {

const json& golden_file() {
  static const json file = test::golden("optimizers.json");
  return file;
}

/// The problem of tests/golden/optimizers.py, with its own copy of the parameters.
struct Problem {
  std::vector<NamedTensor> parameters;
  std::vector<at::Tensor> goals, scales;

  explicit Problem(at::ScalarType dtype = at::kDouble) {
    for (const char* name : {"fc.weight", "fc.bias"}) {
      const json& entry = golden_file()["problem"][name];
      const auto read = [&](const char* key) {
        return test::tensor(entry[key], entry["shape"].get<std::vector<std::int64_t>>()).to(dtype);
      };
      parameters.push_back({name, read("start").set_requires_grad(true)});
      goals.push_back(read("goal"));
      scales.push_back(read("scale"));
    }
  }

  void set_gradients(int step, bool gaps) {
    const std::vector<int> skipped = golden_file()["skipped"];
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor w = parameters[i].tensor.detach();
      const bool missing = gaps && i == 1 && std::count(skipped.begin(), skipped.end(), step) > 0;
      parameters[i].tensor.mutable_grad() =
          missing ? at::Tensor() : scales[i] * (w - goals[i]) + 0.3 * at::sin(w);
    }
  }
};

std::unique_ptr<Optimizer> open(const json& test_case, const Problem& problem) {
  auto optimizer =
      test::make<Optimizer>(test_case["plugin"].get<std::string>(), test::options(test_case["options"]));
  optimizer->open(make_groups(problem.parameters, optimizer->common));
  return optimizer;
}

void step(Optimizer& optimizer, Problem& problem, int step, const json& test_case) {
  problem.set_gradients(step, test_case["gaps"]);
  for (ParamGroup& group : optimizer.groups())
    group.lr = group.base_lr * (1.0 - step / (2.0 * golden_file()["steps"].get<int>()));
  optimizer.step();
}

void compare(at::ScalarType dtype, double tolerance) {
  for (const json& test_case : golden_file()["cases"]) {
    INFO(test_case["plugin"] << " " << test_case["options"] << " gaps " << test_case["gaps"]);
    Problem problem(dtype);
    const auto optimizer = open(test_case, problem);
    int done = 0;
    for (const json& point : test_case["trace"]) {
      while (done < point["step"]) step(*optimizer, problem, done++, test_case);
      for (const NamedTensor& parameter : problem.parameters) {
        INFO(parameter.name << " after " << done);
        const at::Tensor expected =
            test::tensor(point["params"][parameter.name], parameter.tensor.sizes().vec());
        CHECK(test::distance(parameter.tensor, expected) < tolerance);
      }
    }
  }
}

State saved(const Optimizer& optimizer) {
  State state;
  state.owner = "optimizer";
  StateWriter writer(state);
  optimizer.save(writer);
  return state;
}

}  // namespace

TEST_CASE("optimizers follow torch.optim and the published equations, in double precision") {
  compare(at::kDouble, 1e-11);
}

TEST_CASE("optimizers follow them in single precision") {
  compare(at::kFloat, 1e-6);
}

TEST_CASE("an optimizer saved and loaded in the middle goes on to the same bits") {
  for (const json& test_case : golden_file()["cases"]) {
    INFO(test_case["plugin"] << " " << test_case["options"] << " gaps " << test_case["gaps"]);
    Problem straight(at::kFloat), broken(at::kFloat);
    const auto whole = open(test_case, straight);
    auto part = open(test_case, broken);
    for (int i = 0; i < 12; ++i) {
      step(*whole, straight, i, test_case);
      if (i == 6) {
        const State state = saved(*part);
        part = open(test_case, broken);
        part->load(StateReader(state));
        CHECK(digest(saved(*part)) == digest(state));
        for (const auto& [name, tensor] : state.tensors)  // by handle
          CHECK(saved(*part).tensors.at(name).data_ptr() == tensor.data_ptr());
      }
      step(*part, broken, i, test_case);
    }
    for (std::size_t i = 0; i < straight.parameters.size(); ++i)
      CHECK(at::equal(straight.parameters[i].tensor, broken.parameters[i].tensor));
    CHECK(digest(saved(*whole)) == digest(saved(*part)));
  }
}

TEST_CASE("each group has its own learning rate and weight decay") {
  Problem together, apart;
  const auto options = test::table({{"lr", 0.1}, {"weight_decay", 0.2}});
  const auto optimizer = test::make<Optimizer>("adamw", options);
  optimizer->common.groups = {{.match = {"*.bias"}, .lr_factor = 0.5, .weight_decay = 0.0}};
  optimizer->open(make_groups(together.parameters, optimizer->common));
  REQUIRE(optimizer->groups().size() == 2);

  const auto weights = test::make<Optimizer>("adamw", options);
  weights->open(make_groups({apart.parameters[0]}, weights->common));
  const auto biases = test::make<Optimizer>("adamw", test::table({{"lr", 0.05}}));
  biases->open(make_groups({apart.parameters[1]}, biases->common));
  for (int i = 0; i < 5; ++i) {
    together.set_gradients(i, false);
    apart.set_gradients(i, false);
    optimizer->step();
    weights->step();
    biases->step();
  }
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(at::equal(together.parameters[i].tensor, apart.parameters[i].tensor));
}

TEST_CASE("every optimizer: groups one by one, in any order, make the step to the bit") {
  std::set<std::string> tried, shipped;
  for (const auto& file : std::filesystem::directory_iterator(TRAINYARD_PLUGIN_DIR "/optimizer"))
    shipped.insert(file.path().stem().string().substr(3));
  for (const json& test_case : golden_file()["cases"]) {
    INFO(test_case["plugin"] << " " << test_case["options"] << " gaps " << test_case["gaps"]);
    tried.insert(test_case["plugin"].get<std::string>());
    Problem together(at::kFloat), apart(at::kFloat);
    const auto opened = [&](const Problem& problem) {
      auto optimizer =
          test::make<Optimizer>(test_case["plugin"].get<std::string>(), test::options(test_case["options"]));
      optimizer->common.groups = {{.match = {"*.bias"}, .lr_factor = 0.5}};
      optimizer->open(make_groups(problem.parameters, optimizer->common));
      return optimizer;
    };
    const auto whole = opened(together), parts = opened(apart);
    REQUIRE(parts->groups().size() == 2);
    for (int i = 0; i < 12; ++i) {
      together.set_gradients(i, test_case["gaps"]);
      apart.set_gradients(i, test_case["gaps"]);
      whole->step();
      const at::Tensor other = apart.parameters[1].tensor.detach().clone();
      parts->step_group(i % 2 == 0 ? 0 : 1);
      if (i % 2 == 0) CHECK(at::equal(apart.parameters[1].tensor, other));
      parts->step_group(i % 2 == 0 ? 1 : 0);
      for (std::size_t k = 0; k < 2; ++k)
        CHECK(at::equal(together.parameters[k].tensor, apart.parameters[k].tensor));
    }
    CHECK(digest(saved(*whole)) == digest(saved(*parts)));
  }
  CHECK(tried == shipped);
}

TEST_CASE("a parameter without a gradient keeps its value and its state") {
  Problem problem;
  const auto optimizer = test::make<Optimizer>("adamw", test::table({{"lr", 0.1}, {"weight_decay", 0.2}}));
  optimizer->open(make_groups(problem.parameters, optimizer->common));
  const at::Tensor before = problem.parameters[1].tensor.detach().clone();
  problem.set_gradients(0, true);
  optimizer->step();
  CHECK(at::equal(problem.parameters[1].tensor, before));
  CHECK(StateReader(saved(*optimizer)).integer("step/fc.bias") == 0);
  CHECK(StateReader(saved(*optimizer)).integer("step/fc.weight") == 1);
  for (NamedTensor& parameter : problem.parameters) parameter.tensor.mutable_grad() = at::Tensor();
  const at::Tensor weight = problem.parameters[0].tensor.detach().clone();
  optimizer->step();
  CHECK(at::equal(problem.parameters[0].tensor, weight));
}

TEST_CASE("a step records nothing and holds no gradient") {
  Problem problem;
  const auto optimizer = test::make<Optimizer>("sgd", test::table({{"lr", 0.1}}));
  optimizer->open(make_groups(problem.parameters, optimizer->common));
  problem.set_gradients(0, false);
  optimizer->step();
  CHECK(problem.parameters[0].tensor.is_leaf());
  CHECK(problem.parameters[0].tensor.grad().use_count() == 1);
}

TEST_CASE("centered rmsprop stays finite where the gradient hardly varies") {
  const NamedTensor parameter{"w", at::zeros({64}).set_requires_grad(true)};
  const auto optimizer =
      test::make<Optimizer>("rmsprop", test::table({{"lr", 0.01}, {"alpha", 0.5}, {"centered", true}}));
  optimizer->open(make_groups({parameter}, optimizer->common));
  for (int i = 0; i < 200; ++i) {
    parameter.tensor.mutable_grad() = at::linspace(0.1, 3.7, 64);
    optimizer->step();
  }
  CHECK(parameter.tensor.isfinite().all().item<bool>());
}

TEST_CASE("state that does not fit is refused by name and changes nothing") {
  using Catch::Contains;
  Problem problem;
  const auto options = test::table({{"lr", 0.1}});
  const auto optimizer = test::make<Optimizer>("adam", options);
  optimizer->open(make_groups(problem.parameters, optimizer->common));
  problem.set_gradients(0, false);
  optimizer->step();
  const State good = saved(*optimizer);
  const std::string before = digest(good);

  State state = good;
  state.tensors["exp_avg_sq/fc.weight"] = at::zeros({5, 3}, at::kDouble);
  CHECK_THROWS_WITH(optimizer->load(StateReader(state)),
                    Contains("exp_avg_sq/fc.weight") && Contains("[5, 3]") && Contains("[4, 3]"));
  state = good;
  state.tensors["exp_avg/fc.bias"] = at::zeros({3}, at::kFloat);
  CHECK_THROWS_WITH(optimizer->load(StateReader(state)), Contains("Float") && Contains("Double"));
  state = good;
  state.tensors.erase("exp_avg/fc.bias");
  CHECK_THROWS_WITH(optimizer->load(StateReader(state)), Contains("exp_avg/fc.bias") && Contains("missing"));
  state = good;
  state.scalars.erase("step/fc.bias");
  CHECK_THROWS_WITH(optimizer->load(StateReader(state)), Contains("step/fc.bias"));
  CHECK(digest(saved(*optimizer)) == before);
}

TEST_CASE("a schedule may set the momentum of those that have one") {
  const auto has = [](const char* plugin, std::vector<std::pair<std::string, Value>> more) {
    Table options = test::table({{"lr", 0.1}});
    for (auto& [name, value] : more) options.set(name, value);
    return test::make<Optimizer>(plugin, options)->has_momentum();
  };
  for (const char* plugin : {"adam", "adamw", "lamb", "lars"}) CHECK(has(plugin, {}));
  for (const char* plugin : {"sgd", "rmsprop"}) {
    CHECK_FALSE(has(plugin, {}));
    CHECK(has(plugin, {{"momentum", 0.5}}));
  }
}

TEST_CASE("options that contradict each other and parameters that cannot be updated are refused") {
  using Catch::Contains;
  Problem problem;
  const auto refused = [&](const char* plugin, const Table& options, const std::string& text) {
    const auto optimizer = test::make<Optimizer>(plugin, options);
    CHECK_THROWS_WITH(optimizer->open(make_groups(problem.parameters, optimizer->common)), Contains(text));
  };
  refused("sgd", test::table({{"lr", 0.1}, {"nesterov", true}}), "nesterov");
  problem.parameters[0].tensor = at::zeros({4, 3}).t().set_requires_grad(true);
  refused("sgd", test::table({{"lr", 0.1}}), "fc.weight is not contiguous");
  problem.parameters[0].tensor = at::zeros({4, 3});
  refused("sgd", test::table({{"lr", 0.1}}), "must share dtype and device");
  problem.parameters[0].tensor = at::zeros({4, 3}, at::kLong);
  refused("sgd", test::table({{"lr", 0.1}}), "floating-point");
}

TEST_CASE("row-wise Adagrad leaves rows without a gradient, and has one number for each of the others") {
  at::manual_seed(1);
  const auto run = [](at::ScalarType dtype) {
    at::manual_seed(2);
    const NamedTensor tables{"tables.0.weight", at::randn({5, 4}).to(dtype).set_requires_grad(true)};
    const NamedTensor other{"top.weight", at::randn({2, 4}).to(dtype).set_requires_grad(true)};
    const auto optimizer =
        test::make<Optimizer>("rowwise_adagrad", test::table({{"lr", 0.1}, {"tables", Array{"tables.*"}}}));
    optimizer->open(make_groups({tables, other}, optimizer->common));
    const at::Tensor before = tables.tensor.detach().clone();
    for (int i = 0; i < 3; ++i) {
      at::Tensor grad = at::randn({5, 4});
      grad[1].zero_();
      tables.tensor.mutable_grad() = grad.to(dtype);
      other.tensor.mutable_grad() = at::randn({2, 4}).to(dtype);
      optimizer->step();
    }
    const State state = saved(*optimizer);
    CHECK(state.tensors.at("sum/tables.0.weight").sizes() == at::IntArrayRef{5});
    CHECK(state.tensors.at("sum/top.weight").sizes() == at::IntArrayRef{2, 4});
    CHECK(at::equal(tables.tensor[1], before[1]));
    CHECK(state.tensors.at("sum/tables.0.weight")[1].item<double>() == 0.0);
    CHECK_FALSE(at::equal(tables.tensor[2], before[2]));
    return tables.tensor.detach().to(at::kFloat);
  };
  // Other types, and other devices, take another way.
  CHECK(at::allclose(run(at::kFloat), run(at::kDouble), 1e-5, 1e-6));

  // So do gradients of the rows that have one.
  const auto step = [](const at::Tensor& table_gradient, const at::Tensor& other_gradient) {
    at::manual_seed(2);
    std::vector<at::Tensor> ends;
    const NamedTensor tables{"tables.0.weight", at::randn({5, 4}).set_requires_grad(true)};
    const NamedTensor other{"top.weight", at::randn({5, 4}).set_requires_grad(true)};
    const auto optimizer =
        test::make<Optimizer>("rowwise_adagrad", test::table({{"lr", 0.1}, {"tables", Array{"tables.*"}}}));
    optimizer->open(make_groups({tables, other}, optimizer->common));
    tables.tensor.mutable_grad() = table_gradient;
    other.tensor.mutable_grad() = other_gradient;
    optimizer->step();
    for (const auto& [name, tensor] : saved(*optimizer).tensors) ends.push_back(tensor);
    ends.insert(ends.end(), {tables.tensor.detach(), other.tensor.detach()});
    return ends;
  };
  const at::Tensor dense = at::randn({5, 4});
  dense[1].zero_();
  dense[3].zero_();
  const at::Tensor rows = at::tensor({0, 2, 4}, at::kLong);
  const at::Tensor sparse =
      at::sparse_coo_tensor(rows.unsqueeze(0), dense.index_select(0, rows), {5, 4}).coalesce();
  const std::vector<at::Tensor> expected = step(dense, dense), found = step(sparse, sparse);
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(at::allclose(found[i], expected[i], 1e-6, 1e-7));

  Problem problem;
  const auto unfit =
      test::make<Optimizer>("rowwise_adagrad", test::table({{"lr", 0.1}, {"tables", Array{"table.*"}}}));
  CHECK_THROWS_WITH(unfit->open(make_groups(problem.parameters, unfit->common)),
                    Catch::Contains("\"table.*\"") && Catch::Contains("no matrix"));
}

}  // namespace optimizer_tests
