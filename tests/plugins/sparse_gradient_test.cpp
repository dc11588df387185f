// Optimizers on sparse gradients: lazy_adam against Adam on dense ones and against the equations of
// SparseAdam, adagrad and sgd against themselves on dense ones.
#include <catch2/catch.hpp>

#include <ATen/ATen.h>

#include <trainyard/mixins/reads_rows.hpp>
#include <trainyard/network.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/state.hpp>

#include "tests/support/plugin.hpp"

namespace sparse_gradient_tests {

using namespace trainyard;

namespace {

constexpr std::int64_t rows = 30, width = 19;

/// A matrix and a vector of rows, of which a step touches some.
class Tables final : public Network, public ReadsRows {
 public:
  explicit Tables(std::uint64_t seed) {
    at::manual_seed(seed);
    matrix = at::randn({rows, width}).set_requires_grad(true);
    vector = at::randn({rows}).set_requires_grad(true);
  }
  at::Tensor forward(const Batch& batch, const ForwardContext&) override { return batch.input(); }
  std::vector<NamedTensor> parameters() const override { return {{"matrix", matrix}, {"vector", vector}}; }
  std::vector<NamedTensor> buffers() const override { return {}; }
  std::vector<std::int64_t> output_shape() const override { return {}; }
  void to(at::Device) override {}
  void on_read(Listener given) override { listener = std::move(given); }

  at::Tensor matrix, vector;
  Listener listener;
};

struct Context final : StepContext {
  explicit Context(Network& network) { network_ = &network; }
  Context& at(Event event) {
    event_ = event;
    return *this;
  }
};

/// Gradients of a step: of few rows, and of no others.
struct Gradients {
  at::Tensor index, of_matrix, of_vector;

  explicit Gradients(std::int64_t step) {
    at::manual_seed(static_cast<std::uint64_t>(1000 + step));
    index = std::get<0>(at::randperm(rows, at::kLong).slice(0, 0, 1 + step % 7).sort());
    of_matrix = at::randn({index.size(0), width});
    of_vector = at::randn({index.size(0)});
  }
  void give(Tables& to, bool sparse) const {
    const auto whole = [&](const at::Tensor& values, at::IntArrayRef sizes) {
      const at::Tensor coo = at::sparse_coo_tensor(index.unsqueeze(0), values, sizes);
      return sparse ? coo : coo.to_dense();
    };
    to.matrix.mutable_grad() = whole(of_matrix, {rows, width});
    to.vector.mutable_grad() = whole(of_vector, {rows});
  }
};

/// A network and its optimizer.
struct Training {
  Tables network{5};
  test::Subscribed<Optimizer> optimizer;
  Context context{network};

  Training(const std::string& name, Table options, double weight_decay = 0.0)
      : optimizer(name, (options.set("lr", 0.05), options)) {
    optimizer.plugin().common.weight_decay = weight_decay;
    optimizer.plugin().open(make_groups(network.parameters(), optimizer.plugin().common));
  }
  void step(std::int64_t number, bool sparse) {
    optimizer.fire(context.at(Event::batch_start));
    Gradients(number).give(network, sparse);
    for (ParamGroup& group : optimizer.plugin().groups()) {
      group.lr = 0.05 / (1.0 + 0.1 * static_cast<double>(number));
      if (optimizer.plugin().has_momentum()) group.momentum = 0.9 - 0.01 * static_cast<double>(number % 10);
    }
    optimizer.plugin().step();
  }
  void settle() { dynamic_cast<LeavesRows&>(optimizer.plugin()).catch_up(); }
};

double difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs() / b.abs().clamp_min(1.0)).max().item<double>();
}

}  // namespace

TEST_CASE("lazy_adam: rows of sparse gradients end where Adam takes them, at a window of any size") {
  for (const int window : {1, 4, 64, 500})
    for (const double weight_decay : {0.0, 0.1}) {
      INFO("window " << window << ", weight decay " << weight_decay);
      Training lazy("lazy_adam", test::table({{"window", window}}), weight_decay);
      Training dense("adam", {}, weight_decay);
      for (std::int64_t number = 0; number < 120; ++number) {
        lazy.step(number, true);
        dense.step(number, false);
        if (number != 0 && number != 49 && number != 119) continue;
        lazy.settle();
        const double bound = number == 0 ? 1e-6 : 1e-5;
        CHECK(difference(lazy.network.matrix.detach(), dense.network.matrix.detach()) < bound);
        CHECK(difference(lazy.network.vector.detach(), dense.network.vector.detach()) < bound);
      }
    }
}

TEST_CASE("lazy_adam: the bits do not depend on when rows are brought up to date") {
  Training once("lazy_adam", test::table({{"window", 100}})),
      often("lazy_adam", test::table({{"window", 7}}));
  for (std::int64_t number = 0; number < 60; ++number) {
    once.step(number, true);
    often.step(number, true);
    if (number % 5 == 0) often.settle();
    if (number % 3 == 0) {
      const std::vector<std::int64_t> read{1, 7, 1, 29};
      often.network.listener(often.network.matrix, read);
    }
  }
  once.settle();
  often.settle();
  CHECK(at::equal(once.network.matrix, often.network.matrix));
  CHECK(at::equal(once.network.vector, often.network.vector));
}

TEST_CASE("lazy_adam: rows that are about to be read are where Adam has them, others wait") {
  Training lazy("lazy_adam", {}), dense("adam", {});
  for (std::int64_t number = 0; number < 20; ++number) {
    lazy.step(number, true);
    dense.step(number, false);
  }
  const at::Tensor before = lazy.network.matrix.detach().clone();
  const std::vector<std::int64_t> read{0, 3, 11, 3};
  lazy.network.listener(lazy.network.matrix, read);
  bool one_waited = false;
  for (std::int64_t row = 0; row < rows; ++row) {
    const at::Tensor now = lazy.network.matrix.detach()[row], expected = dense.network.matrix.detach()[row];
    if (std::count(read.begin(), read.end(), row) > 0)
      CHECK(difference(now, expected) < 1e-5);
    else
      CHECK(at::equal(now, before[row]));
    one_waited = one_waited || difference(now, expected) > 1e-3;
  }
  CHECK(one_waited);
  lazy.optimizer.fire(lazy.context.at(Event::swap_out));
  CHECK_FALSE(lazy.network.listener);
}

TEST_CASE("lazy_adam: not exact, it follows the equations of SparseAdam and leaves other rows alone") {
  Training lazy("lazy_adam", test::table({{"exact", false}}));
  at::Tensor w = lazy.network.matrix.detach().clone().to(at::kDouble), m = at::zeros_like(w),
             v = at::zeros_like(w);
  for (std::int64_t number = 0; number < 40; ++number) {
    const at::Tensor before = lazy.network.matrix.detach().clone();
    lazy.step(number, true);
    const Gradients given(number);
    const double beta1 = 0.9 - 0.01 * static_cast<double>(number % 10), beta2 = 0.999;
    const double lr = 0.05 / (1.0 + 0.1 * static_cast<double>(number)), t = static_cast<double>(number + 1);
    const at::Tensor g = given.of_matrix.to(at::kDouble);
    const at::Tensor m_rows = beta1 * m.index_select(0, given.index) + (1 - beta1) * g;
    const at::Tensor v_rows = beta2 * v.index_select(0, given.index) + (1 - beta2) * g * g;
    m.index_copy_(0, given.index, m_rows);
    v.index_copy_(0, given.index, v_rows);
    const at::Tensor root = (v_rows / (1 - std::pow(beta2, t))).sqrt() + 1e-8;
    w.index_add_(0, given.index, -lr / (1 - std::pow(beta1, t)) * m_rows / root);
    CHECK(difference(lazy.network.matrix.detach().to(at::kDouble), w) < 1e-5);
    const at::Tensor moved = (lazy.network.matrix.detach() - before).abs().sum(1).ne(0).nonzero().flatten();
    CHECK(at::equal(moved, given.index));
  }
}

TEST_CASE("lazy_adam: dense gradients among sparse ones are Adam's, of parameters of double, too") {
  Training lazy("lazy_adam", test::table({{"window", 8}})), dense("adam", {});
  for (std::int64_t number = 0; number < 40; ++number) {
    lazy.step(number, number % 5 != 4);
    dense.step(number, false);
  }
  lazy.settle();
  CHECK(difference(lazy.network.matrix.detach(), dense.network.matrix.detach()) < 1e-5);
}

TEST_CASE("lazy_adam: gradients that name a row twice count both") {
  Training twice("lazy_adam", {}), once("lazy_adam", {});
  const at::Tensor index = at::tensor(std::vector<std::int64_t>{3, 1, 3}).unsqueeze(0),
                   values = at::randn({3, width});
  const at::Tensor gradient = at::sparse_coo_tensor(index, values, {rows, width});
  twice.network.matrix.mutable_grad() = gradient;
  once.network.matrix.mutable_grad() = gradient.coalesce();
  for (Training* each : {&twice, &once}) {
    each->optimizer.plugin().groups().front().lr = 0.05;
    each->optimizer.plugin().step();
  }
  CHECK(at::equal(twice.network.matrix, once.network.matrix));
  CHECK_FALSE(at::equal(twice.network.matrix[3], Tables(5).matrix[3]));
}

TEST_CASE("lazy_adam: saved and loaded in the middle, with rows behind, it goes on to the same bits") {
  for (const bool exact : {true, false}) {
    const Table options = test::table({{"exact", exact}, {"window", 16}});
    Training whole("lazy_adam", options), part("lazy_adam", options), rest("lazy_adam", options);
    for (std::int64_t number = 0; number < 40; ++number) whole.step(number, true);
    for (std::int64_t number = 0; number < 21; ++number) part.step(number, true);
    const State state = part.optimizer.saved();
    rest.network.matrix.detach().copy_(part.network.matrix.detach());
    rest.network.vector.detach().copy_(part.network.vector.detach());
    rest.optimizer.plugin().load(StateReader(state));
    for (std::int64_t number = 21; number < 40; ++number) rest.step(number, true);
    whole.settle();
    rest.settle();
    CHECK(at::equal(whole.network.matrix, rest.network.matrix));
    CHECK(at::equal(whole.network.vector, rest.network.vector));
    CHECK(digest(whole.optimizer.saved()) == digest(rest.optimizer.saved()));
  }
}

TEST_CASE("lazy_adam: sparse gradients of what it cannot update by rows are refused") {
  const auto optimizer = test::make<Optimizer>("lazy_adam", test::table({{"lr", 0.1}}));
  at::Tensor weight = at::randn({4, 3}, at::kDouble).set_requires_grad(true);
  optimizer->open(make_groups({{"weight", weight}}, optimizer->common));
  weight.mutable_grad() = at::sparse_coo_tensor(at::tensor(std::vector<std::int64_t>{1}).unsqueeze(0),
                                                at::ones({1, 3}, at::kDouble), {4, 3});
  CHECK_THROWS_AS(optimizer->step(), ConfigError);
}

TEST_CASE("adagrad and sgd: sparse gradients make the step of dense ones with zeros") {
  for (const char* name : {"adagrad", "sgd"}) {
    INFO(name);
    const bool decays_rate = std::string_view(name) == "adagrad";
    const Table options = decays_rate ? test::table({{"lr_decay", 0.1}}) : Table();
    Training sparse(name, options), dense(name, options);
    for (std::int64_t number = 0; number < 30; ++number) {
      sparse.step(number, number % 6 != 5);
      dense.step(number, false);
    }
    CHECK(difference(sparse.network.matrix.detach(), dense.network.matrix.detach()) < 1e-6);
    CHECK(difference(sparse.network.vector.detach(), dense.network.vector.detach()) < 1e-6);
    Training decays(name, options, 0.1);
    CHECK_THROWS_AS(decays.step(0, true), ConfigError);
  }
  Training momentum("sgd", test::table({{"momentum", 0.9}}));
  CHECK_THROWS_AS(momentum.step(0, true), ConfigError);
}

}  // namespace sparse_gradient_tests
