// The executor pipelined: its algebra against closed forms, its pipeline against a sequential account of the method
// in double precision and with gradients by hand, and what it keeps in flight.
#include <catch2/catch.hpp>

#include <atomic>
#include <cmath>
#include <complex>
#include <mutex>
#include <numeric>
#include <random>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <trainyard/graph/builder.hpp>
#include <trainyard/helpers/gather.hpp>
#include <trainyard/testing/ranks.hpp>

#include "plugins/executor/layers.hpp"
#include "plugins/executor/pipelined/layers.hpp"
#include "plugins/executor/pipelined/pipeline.hpp"

namespace pipelined_tests {

using namespace trainyard;
using namespace pipelined;
using Catch::Contains;

namespace {

// ---- a weight on a parabola

/// Gradient w, learning rate x, a constant delay; the rules of rules.hpp, and what went before.
class Parabola {
 public:
  Parabola(Mitigation mitigation, std::int64_t delay, double momentum, double lr)
      : mitigation_(mitigation), delay_(delay), rates_{lr, momentum} {
    versions_.assign(static_cast<std::size_t>(delay) + 2, {1.0, 0.0});
  }
  void step() {
    // The newest version is the last; the one of the forward pass, `delay` updates older; before it another.
    const auto& [w_old, v_old] = versions_[1];
    double forward = w_old;
    const auto horizon = static_cast<double>(delay_);
    if (predicts_by_velocity(mitigation_))
      predict_by_velocity(&forward, &w_old, &v_old, 1, rates_.lr, horizon);
    if (predicts_by_weights(mitigation_))
      predict_by_weights(&forward, &w_old, &versions_[0].first, 1, horizon);
    seen = forward;
    auto [w, v] = versions_.back();
    update(&w, &v, &forward, 1, rates_, 0.0, spike(mitigation_, rates_.momentum, horizon));
    versions_.erase(versions_.begin());
    versions_.emplace_back(w, v);
  }
  /// Factor by which it shrinks in a step, in the end.
  double rate() {
    constexpr int before = 6000, measured = 24000;
    for (int i = 0; i < before; ++i) shrunk();
    double sum = 0.0;
    for (int i = 0; i < measured; ++i) sum += shrunk();
    return std::exp(sum / measured);
  }
  double w() const { return versions_.back().first; }
  double seen = 0.0;  ///< by the forward pass

 private:
  /// A step, and the logarithm by which all that is kept shrank; that is put back.
  double shrunk() {
    step();
    double size = 0.0;
    for (const auto& [w, v] : versions_) size = std::max({size, std::abs(w), rates_.lr * std::abs(v)});
    for (auto& [w, v] : versions_) w /= size, v /= size;
    return std::log(size);
  }
  Mitigation mitigation_;
  std::int64_t delay_;
  Rates rates_;
  std::vector<std::pair<double, double>> versions_;
};

using Polynomial = std::vector<double>;  ///< coefficients, lowest first
Polynomial times(const Polynomial& p, const Polynomial& q) {
  Polynomial r(p.size() + q.size() - 1, 0.0);
  for (std::size_t i = 0; i < p.size(); ++i)
    for (std::size_t k = 0; k < q.size(); ++k) r[i + k] += p[i] * q[k];
  return r;
}
/// The largest root: an eigenvalue of the companion matrix.
double spectral_radius(const Polynomial& p) {
  const auto n = static_cast<std::int64_t>(p.size()) - 1;
  at::Tensor matrix = at::zeros({n, n}, at::kDouble);
  for (std::int64_t i = 0; i < n; ++i) matrix[i][n - 1] = -p[static_cast<std::size_t>(i)] / p.back();
  for (std::int64_t i = 1; i < n; ++i) matrix[i][i - 1] = 1.0;
  return at::linalg_eigvals(matrix).abs().max().item<double>();
}
/// z^D (z - 1)(z - m) + x q(z), q by the method.
double expected_rate(Mitigation mitigation, std::int64_t delay, double m, double x) {
  const auto d = static_cast<double>(delay);
  const double a = std::pow(m, d), b = (1.0 - a) / (1.0 - m);
  const Polynomial spiked{-b * m, a + b}, ahead{-d, 1.0 + d};
  Polynomial left = times({-1.0, 1.0}, {-m, 1.0}), q;
  for (std::int64_t i = 0; i < delay; ++i) left = times(left, {0.0, 1.0});
  switch (mitigation) {
    case Mitigation::sc: q = spiked; break;
    case Mitigation::lwpv:
    case Mitigation::lwpw: q = ahead; break;
    case Mitigation::lwpv_sc: q = {spiked[0] - d, spiked[1] + d}; break;
    case Mitigation::lwpw_sc:
      q = times(spiked, ahead);
      left = times(left, {0.0, 1.0});
      break;
    default: q = {0.0, 1.0};
  }
  left.resize(std::max(left.size(), q.size()), 0.0);
  for (std::size_t i = 0; i < q.size(); ++i) left[i] += x * q[i];
  return spectral_radius(left);
}

constexpr Mitigation methods[] = {Mitigation::none, Mitigation::sc, Mitigation::lwpv, Mitigation::lwpv_sc,
                                  Mitigation::lwpw_sc};

}  // namespace

TEST_CASE("pipelined: a compensated gradient does at once what it would have done, and as much in all") {
  double w = 0.0, v = 0.0, sum = 0.0;
  const double expected[] = {4.0951, 0.59049, 0.531441};
  for (int i = 0; i < 400; ++i) {
    const double before = w, g = i == 0 ? 1.0 : 0.0;
    update(&w, &v, &g, 1, {1.0, 0.9}, 0.0, compensated(0.9, 4.0));
    if (i < 3) CHECK(before - w == Approx(expected[i]).epsilon(1e-12));
    sum += before - w;
  }
  CHECK(sum == Approx(10.0).epsilon(1e-12));
}

TEST_CASE("pipelined: compensation for a delay of one is Nesterov's momentum, for none it is none") {
  const at::Tensor start = at::randn({64}, at::kDouble);
  for (const bool nesterov : {true, false}) {
    at::Tensor w = start.clone(), v = at::zeros_like(w), w_torch = start.clone(), v_torch = at::zeros_like(w);
    for (int i = 0; i < 1000; ++i) {
      const at::Tensor g = at::sin(w_torch * (i + 1));
      update(w.data_ptr<double>(), v.data_ptr<double>(), g.data_ptr<double>(), 64, {0.01, 0.9}, 0.003,
             compensated(0.9, nesterov ? 1.0 : 0.0));
      at::_fused_sgd_({w_torch}, {g}, {v_torch}, 0.003, 0.9, 0.01, 0.0, nesterov, false, i == 0);
    }
    CHECK(((w - w_torch).abs() / w_torch.abs().clamp_min(1.0)).max().item<double>() <= 1e-12);
  }
  CHECK(compensated(0.0, 3.0).a == 0.0);  // without momentum it does nothing
  CHECK(compensated(0.0, 3.0).b == 1.0);
  CHECK(compensated(0.0, 0.0).a == 1.0);
  CHECK(compensated(0.0, 0.0).b == 0.0);
  CHECK(compensated(0.9, 0.0).b == 0.0);
}

TEST_CASE("pipelined: both predictions are one without compensation, and one generalised compensation") {
  for (const std::int64_t delay : {1, 4, 10}) {
    Parabola by_velocity(Mitigation::lwpv, delay, 0.9, 0.002),
        by_weights(Mitigation::lwpw, delay, 0.9, 0.002);
    Parabola apart_v(Mitigation::lwpv_sc, delay, 0.9, 0.002), apart_w(Mitigation::lwpw_sc, delay, 0.9, 0.002);
    std::vector<double> seen;
    double worst = 0.0, apart = 0.0;
    for (int i = 0; i < 1000; ++i) {
      by_velocity.step(), by_weights.step(), apart_v.step(), apart_w.step();
      worst = std::max(worst, std::abs(by_velocity.w() - by_weights.w()));
      apart = std::max(apart, std::abs(apart_v.w() - apart_w.w()));
      seen.push_back(by_velocity.seen);
    }
    CHECK(worst <= 1e-12);
    CHECK(apart > 1e-4);  // one does not see the spike

    // The predicted weights go as those of gsc, from where the history of both is the same: all at rest at 1.
    const Spike spike = as_prediction(0.9, static_cast<double>(delay));
    std::vector<double> w(static_cast<std::size_t>(delay) + 1, 1.0);
    double v = 0.0;
    for (int i = 0; i < 1000; ++i) {
      CHECK(std::abs(w[static_cast<std::size_t>(i)] - seen[static_cast<std::size_t>(i)]) <= 1e-12);
      double next = w.back();
      const double g = w[static_cast<std::size_t>(i)];
      update(&next, &v, &g, 1, {0.002, 0.9}, 0.0, spike);
      w.push_back(next);
    }
  }
  CHECK(as_prediction(0.9, 1.0).a == Approx(0.888889).epsilon(1e-5));
  CHECK(as_prediction(0.9, 4.0).b == Approx(4.444444).epsilon(1e-5));
  CHECK(as_prediction(0.9, 10.0).a == Approx(-0.111111).epsilon(1e-5));
}

TEST_CASE("pipelined: on a parabola every method shrinks as its characteristic polynomial says") {
  CHECK(expected_rate(Mitigation::none, 4, 0.9, 0.01) == Approx(0.97095).epsilon(1e-4));  // of the card
  CHECK(expected_rate(Mitigation::lwpv_sc, 4, 0.9, 0.01) == Approx(0.901006).epsilon(1e-4));
  const double x_of_delay[] = {0.01, 0.01, 0.002};
  const std::int64_t delays[] = {1, 4, 16};
  for (std::size_t d = 0; d < 3; ++d)
    for (const Mitigation method : methods) {
      INFO("delay " << delays[d] << ", method " << static_cast<int>(method));
      CHECK(Parabola(method, delays[d], 0.9, x_of_delay[d]).rate() ==
            Approx(expected_rate(method, delays[d], 0.9, x_of_delay[d])).epsilon(1e-3));
    }
}

TEST_CASE("pipelined: the largest stable step of every method") {
  const struct {
    std::int64_t delay;
    double edges[5];
  } rows[] = {{0, {3.8, 3.8, 3.8, 3.8, 3.8}},
              {1, {0.1, 0.25314, 0.27016, 0.29165, 0.34497}},
              {4, {0.026498, 0.048328, 0.049420, 0.040523, 0.047656}},
              {16, {0.0074880, 0.0096225, 0.0077194, 0.0059525, 0.0064164}},
              {32, {0.0040635, 0.0048214, 0.0032905, 0.0027279, 0.0029265}}};
  const auto edge = [](Mitigation method, std::int64_t delay, double m, double most) {
    double low = 0.0, high = most;
    for (int i = 0; i < 14; ++i) {
      const double x = (low + high) / 2.0;
      (Parabola(method, delay, m, x).rate() < 1.0 ? low : high) = x;
    }
    return low;
  };
  for (const auto& row : rows)
    for (std::size_t i = 0; i < 5; ++i) {
      INFO("delay " << row.delay << ", method " << i);
      CHECK(edge(methods[i], row.delay, 0.9, row.edges[i] * 1.7) == Approx(row.edges[i]).epsilon(0.01));
    }
  for (const std::int64_t delay : {0, 1, 2, 4, 8})  // without momentum: 2 sin(pi / (2 (2 D + 1)))
    CHECK(edge(Mitigation::none, delay, 0.0, 3.5) ==
          Approx(2.0 * std::sin(M_PI / (2.0 * (2.0 * static_cast<double>(delay) + 1.0)))).epsilon(0.01));
}

TEST_CASE("pipelined: rates for other update sizes") {
  CHECK(scaled({0.1, 0.9}, 128, 1).momentum == Approx(0.99917721).epsilon(1e-7));
  CHECK(scaled({0.1, 0.9}, 128, 1).lr == Approx(6.42805e-6).epsilon(1e-5));
  CHECK(scaled({0.1, 0.9}, 128, 8).lr == Approx(4.10212e-4).epsilon(1e-5));
  CHECK(scaled({0.1, 0.9}, 128, 32).momentum == Approx(0.97400375).epsilon(1e-7));
  CHECK(scaled({0.1, 0.9}, 256, 1).lr == Approx(1.60734e-6).epsilon(1e-5));
  CHECK(scaled({0.1, 0.9}, 32, 32).lr == Approx(0.1).epsilon(1e-12));
}

// ---- on networks

namespace {

constexpr std::int64_t width = 6;

/// Squared errors against the target, halved; counts.
class Squares final : public Judge {
 public:
  at::Tensor loss(const Unit& unit, const at::Tensor& output) override {
    const at::AutoGradMode tracked(true);
    return at::sub(output, unit.batch.target).square().sum() * 0.5;
  }
  void passed_back(const Unit&) override { ++back; }
  void clip(Tensors& gradients) override {
    if (most > 0.0) at::_foreach_clamp_max_(gradients, most);
  }
  std::int64_t back = 0;
  double most = 0.0;
};

/// A chain of linear layers, ReLU between them, with weights of its own.
struct Chain {
  explicit Chain(std::int64_t layers, std::int64_t size = width) {
    BatchSchema schema;
    schema.inputs = {{.name = "x", .shape = {size}}};
    GraphBuilder b(schema, 7);
    ValueId x = b.input();
    for (std::int64_t i = 0; i < layers; ++i) {
      x = b.linear(x, "fc" + std::to_string(i), size);
      if (i + 1 < layers) x = b.relu(x);
    }
    take(b.finish(x));
  }
  explicit Chain(Graph made) { take(std::move(made)); }
  void take(Graph made) {
    graph = std::move(made);
    const at::NoGradGuard untracked;
    for (const GraphValue& value : graph.values)
      if (value.trainable)
        weights[value.name] = {.weight = value.initializer,
                               .velocity = at::zeros_like(value.initializer),
                               .lr = lr,
                               .decay = decay};
  }
  Pipeline pipeline(const Method& method, Judge& judge, int workers = 1, std::int64_t stages = 0) const {
    return {graph, stage_of_nodes(graph, stages), weights, method, workers, judge};
  }
  std::string digests() const {
    std::string text;
    for (const auto& [name, each] : weights) text += digest(each.weight) + digest(each.velocity);
    return text;
  }
  static constexpr double lr = 0.02, decay = 0.01;
  Graph graph;
  Weights weights;
};

/// Number `i` of samples that are always the same; the schedule falls.
UnitHandle sample(std::int64_t i, std::int64_t size = width, std::int64_t rows = 1) {
  auto unit = std::make_shared<Unit>();
  const at::Tensor base = at::arange(rows * size, at::kFloat).reshape({rows, size});
  unit->batch.inputs = {at::sin(base * 1.7 + static_cast<double>(i))};
  unit->batch.target = at::cos(base * 0.9 + static_cast<double>(2 * i));
  for (std::int64_t row = 0; row < rows; ++row) unit->batch.indices.push_back(i * rows + row);
  unit->batch.weight = static_cast<double>(rows);
  unit->pass.training = true;
  unit->factor = 1.0 / (1.0 + 0.01 * static_cast<double>(i));
  return unit;
}

std::vector<UnitHandle> samples(std::int64_t first, std::int64_t last, std::int64_t size = width) {
  std::vector<UnitHandle> units;
  for (std::int64_t i = first; i < last; ++i) units.push_back(sample(i, size));
  return units;
}

Method with(Mitigation mitigation, bool keeps = false) {
  return {.mitigation = mitigation, .momentum = 0.9, .keeps_weights = keeps};
}

/// The method's account, sample by sample, in double, with gradients by hand: what a pipeline has to come to.
class Account {
 public:
  Account(const Chain& chain, Mitigation mitigation) : mitigation_(mitigation) {
    for (std::int64_t s = 0; chain.weights.contains("fc" + std::to_string(s) + ".weight"); ++s)
      for (const char* part : {".weight", ".bias"}) {
        const at::Tensor w = chain.weights.at("fc" + std::to_string(s) + part).weight.to(at::kDouble).clone();
        past_.push_back({{w, at::zeros_like(w)}});
      }
  }
  void take(const Unit& unit) {
    const std::size_t stages = past_.size() / 2, i = past_.front().size() - 1;
    const double lr = Chain::lr * unit.factor, m = 0.9;
    std::vector<at::Tensor> forward, backward;
    for (std::size_t p = 0; p < past_.size(); ++p) {
      const std::size_t delay = 2 * (stages - 1 - p / 2), old = i > delay ? i - delay : 0;
      const auto& [w, v] = past_[p][old];
      const auto horizon = static_cast<double>(delay);
      at::Tensor seen = w;
      if (mitigation_ == Mitigation::lwpv || mitigation_ == Mitigation::lwpv_sc) seen = w - lr * horizon * v;
      if (mitigation_ == Mitigation::lwpw || mitigation_ == Mitigation::lwpw_sc)
        seen = w + horizon * (w - past_[p][old > 0 ? old - 1 : 0].first);
      forward.push_back(seen);
      backward.push_back(mitigation_ == Mitigation::stash ? seen : past_[p][i].first);
    }
    std::vector<at::Tensor> xs = {unit.batch.inputs.front()[0].to(at::kDouble)};
    for (std::size_t s = 0; s < stages; ++s) {
      const at::Tensor y = at::mv(forward[2 * s], xs.back()) + forward[2 * s + 1];
      xs.push_back(s + 1 < stages ? at::relu(y) : y);
    }
    at::Tensor g = xs.back() - unit.batch.target[0].to(at::kDouble);
    for (std::size_t s = stages; s-- > 0;) {
      if (s + 1 < stages) g = g * (xs[s + 1] > 0);
      const at::Tensor given[] = {at::outer(g, xs[s]), g};
      g = at::mv(backward[2 * s].t(), g);
      const auto delay = static_cast<double>(2 * (stages - 1 - s));
      const bool spikes = mitigation_ == Mitigation::sc || mitigation_ == Mitigation::lwpv_sc ||
                          mitigation_ == Mitigation::lwpw_sc;
      double a = spikes ? std::pow(m, delay) : 1.0, b = (1.0 - a) / (1.0 - m);
      if (mitigation_ == Mitigation::gsc) a = 1.0 - delay * (1.0 - m) / m, b = delay / m;
      for (std::size_t part = 0; part < 2; ++part) {
        auto& past = past_[2 * s + part];
        const at::Tensor gradient = given[part] + Chain::decay * past.back().first;
        const at::Tensor v = m * past.back().second + gradient;
        past.emplace_back(past.back().first - lr * (a * v + b * gradient), v);
      }
    }
  }
  /// The largest difference of a weight or velocity, of its tensor's largest element.
  double away_from(const Chain& chain) const {
    double worst = 0.0;
    const auto compare = [&](const at::Tensor& is, const at::Tensor& should) {
      worst =
          std::max(worst, ((is.to(at::kDouble) - should).abs().max() / should.abs().max()).item<double>());
    };
    for (std::size_t p = 0; p < past_.size(); ++p) {
      const Weight& each =
          chain.weights.at("fc" + std::to_string(p / 2) + (p % 2 == 0 ? ".weight" : ".bias"));
      compare(each.weight, past_[p].back().first);
      compare(each.velocity, past_[p].back().second);
    }
    return worst;
  }

 private:
  Mitigation mitigation_;
  std::vector<std::vector<std::pair<at::Tensor, at::Tensor>>> past_;  ///< by parameter: after each update
};

/// Into the tensors that another chain has.
void copy(const Weight& from, const Weight& to) {
  const at::NoGradGuard untracked;
  to.weight.copy_(from.weight);
  to.velocity.copy_(from.velocity);
}

constexpr Mitigation all[] = {Mitigation::none, Mitigation::stash,   Mitigation::sc,      Mitigation::lwpv,
                              Mitigation::lwpw, Mitigation::lwpv_sc, Mitigation::lwpw_sc, Mitigation::gsc};

}  // namespace

TEST_CASE("pipelined: every method comes to the sequential account of it") {
  for (const Mitigation mitigation : all)
    for (const std::int64_t layers : {1, 2, 5}) {
      INFO("method " << static_cast<int>(mitigation) << ", layers " << layers);
      const Chain chain(layers);
      Account account(chain, mitigation);
      Squares judge;
      Pipeline pipeline = chain.pipeline(with(mitigation), judge);
      for (const UnitHandle& unit : samples(0, 60)) account.take(*unit);
      pipeline.feed(samples(0, 35));
      pipeline.feed(samples(35, 60));
      pipeline.drain();
      CHECK(judge.back == 60);
      CHECK(account.away_from(chain) < 2e-4);
    }
}

TEST_CASE("pipelined: delays, cycles, and what is in flight") {
  for (const std::int64_t stages : {2, 5, 34}) {
    const Chain chain(stages);
    Squares judge;
    Pipeline pipeline = chain.pipeline(with(Mitigation::none), judge);
    Pipeline stashing = chain.pipeline(with(Mitigation::stash), judge);
    Pipeline keeping = chain.pipeline(with(Mitigation::sc, true), judge);
    const std::int64_t units = 2 * stages + 9;
    for (std::int64_t i = 0; i < units; ++i) {
      pipeline.feed({sample(i)});
      stashing.feed({sample(i)});
      keeping.feed({sample(i)});
      for (std::int64_t s = 0; s < stages; ++s)
        if (const std::int64_t newest = i - s; newest >= 0 && s + 1 < stages)
          CHECK(pipeline.stage(s).passed().back().version ==
                std::max<std::int64_t>(newest - 2 * (stages - 1 - s), 0));
    }
    CHECK(pipeline.cycles() == units);
    std::size_t sets = 0, copies = 0;
    for (std::int64_t s = 0; s < stages; ++s) {
      const Stage& stage = pipeline.stage(s);
      CHECK(stage.delay() == 2 * (stages - 1 - s));
      CHECK(stage.most() == static_cast<std::size_t>(stage.delay() + 1));
      sets += stage.most();
      std::size_t versions = 0, stashed = 0;
      for (const Stage::Passed& each : stage.passed()) versions += each.weights.size();
      for (const Stage::Passed& each : stashing.stage(s).passed()) stashed += each.weights.size();
      for (const Stage::Passed& each : keeping.stage(s).passed()) copies += each.weights.size() / 2;
      CHECK(versions == 0);
      CHECK(stashed == 2 * static_cast<std::size_t>(stage.delay()));  // between cycles; within one, one more
    }
    CHECK(sets == static_cast<std::size_t>(stages * stages));
    // What the option checkpoint = "in_flight" costs: of weights of a stage, as many between cycles.
    CHECK(copies == static_cast<std::size_t>(stages * (stages - 1)));
    pipeline.drain();
    CHECK(pipeline.cycles() == units + 2 * (stages - 1));
    for (std::int64_t s = 0; s < stages; ++s) CHECK(pipeline.stage(s).updates() == units);
  }
}

TEST_CASE("pipelined: forward and backward see different weights, and stashing makes them one") {
  // Of two stages, at the first: y = relu(w x) with x = 1; in the backward pass of the second its weight.
  const Chain chain(3);
  Squares judge;
  Pipeline pipeline = chain.pipeline(with(Mitigation::none), judge);
  const at::Tensor start = chain.weights.at("fc1.weight").weight.clone();
  pipeline.feed(samples(0, 4));
  CHECK_FALSE(at::equal(chain.weights.at("fc1.weight").weight, start));
  CHECK(pipeline.stage(1).passed().back().version < pipeline.stage(1).updates());
}

TEST_CASE("pipelined: parameters do not move where there is nothing to move them") {
  for (const Mitigation mitigation : all) {
    Chain chain(4);
    for (auto& [name, each] : chain.weights) each.decay = 0.0;
    const std::string before = chain.digests();
    class Nothing final : public Judge {
      at::Tensor loss(const Unit&, const at::Tensor& output) override {
        const at::AutoGradMode tracked(true);
        return output.sum() * 0.0;
      }
      void passed_back(const Unit&) override {}
      void clip(Tensors&) override {}
    } judge;
    Pipeline pipeline = chain.pipeline(with(mitigation, true), judge);
    pipeline.feed(samples(0, 30));
    pipeline.drain();
    INFO("method " << static_cast<int>(mitigation));
    CHECK(chain.digests() == before);
  }
}

TEST_CASE("pipelined: threads come to the bits of one") {
  for (const Mitigation mitigation : {Mitigation::none, Mitigation::lwpv_sc, Mitigation::stash}) {
    const std::int64_t units = mitigation == Mitigation::none ? 2000 : 200;
    std::vector<std::string> digests;
    for (const int workers : {1, 2, 5}) {
      const Chain chain(5);
      Squares judge;
      Pipeline pipeline = chain.pipeline(with(mitigation), judge, workers);
      for (std::int64_t first = 0; first < units; first += 50) pipeline.feed(samples(first, first + 50));
      digests.push_back(chain.digests());
      pipeline.drain();
      digests.back() += chain.digests();
      CHECK(judge.back == units);
    }
    for (const std::string& each : digests) CHECK(each == digests.front());
  }
}

TEST_CASE("pipelined: what is saved in flight goes on to the same bits") {
  std::mt19937 random(3);
  for (const Mitigation mitigation : all)
    for (const std::int64_t kept :
         {std::int64_t{1}, std::int64_t{9}, static_cast<std::int64_t>(20 + random() % 20)}) {
      const std::int64_t units = mitigation == Mitigation::lwpv_sc && kept > 9 ? 500 : 60;
      INFO("method " << static_cast<int>(mitigation) << ", saved after " << kept);
      Squares judge;
      const Chain chain(7);
      Pipeline whole = chain.pipeline(with(mitigation, true), judge);
      whole.feed(samples(0, units));
      whole.drain();

      Chain first(7), second(7);
      State state;
      {
        Pipeline before = first.pipeline(with(mitigation, true), judge);
        before.feed(samples(0, kept));
        StateWriter writer(state);
        before.save(writer);
        for (auto& [name, tensor] : state.tensors) tensor = tensor.clone();
        for (auto& [name, each] : second.weights) {
          const at::NoGradGuard untracked;
          each.weight.copy_(first.weights.at(name).weight);
          each.velocity.copy_(first.weights.at(name).velocity);
        }
        before.feed(samples(kept, 45));  // is of no account
      }
      Pipeline after = second.pipeline(with(mitigation, true), judge, 2);
      after.load(StateReader(state));
      after.feed(samples(kept, units));
      after.drain();
      CHECK(second.digests() == chain.digests());
    }
}

TEST_CASE("pipelined: what is in flight goes into a pipeline of as many stages alone") {
  const Chain chain(4), other(4);
  Squares judge;
  Pipeline before = chain.pipeline(with(Mitigation::none, true), judge);
  Pipeline fewer = other.pipeline(with(Mitigation::none, true), judge, 1, 2);
  State empty, state;
  StateWriter nothing(empty), writer(state);
  before.save(nothing);
  CHECK_NOTHROW(fewer.load(StateReader(empty)));
  before.feed(samples(0, 9));
  before.save(writer);
  CHECK_THROWS_WITH(fewer.load(StateReader(state)), Contains("of 4 stages, and this one has 2"));
}

TEST_CASE("pipelined: what is in flight keeps its strides, from which sums take their order") {
  BatchSchema schema;
  schema.inputs = {{.name = "x", .shape = {2, 3}}};
  GraphBuilder b(schema, 7);
  const ValueId turned = b.node("Transpose", "turn", {b.linear(b.input(), "fc0", 3)},
                                {{"perm", std::vector<std::int64_t>{0, 2, 1}}});
  const Chain chain(b.finish(b.linear(turned, "fc1", 2)));
  std::vector<UnitHandle> units;
  for (std::int64_t i = 0; i < 5; ++i) {
    auto unit = std::make_shared<Unit>(*sample(i));
    unit->batch.inputs = {unit->batch.input().reshape({1, 2, 3})};
    unit->batch.target = unit->batch.target.reshape({1, 3, 2});
    units.push_back(unit);
  }
  Squares judge;
  Pipeline before = chain.pipeline(with(Mitigation::none, true), judge);
  before.feed(units);
  State saved, again;
  StateWriter writer(saved), second(again);
  before.save(writer);
  State file = saved;  // which has tensors without gaps, in their order
  for (auto& [name, tensor] : file.tensors) tensor = tensor.clone(at::MemoryFormat::Contiguous);
  Pipeline after = chain.pipeline(with(Mitigation::none, true), judge);
  after.load(StateReader(file));
  after.save(second);
  std::size_t turned_ones = 0;
  REQUIRE(again.tensors.size() == saved.tensors.size());
  for (const auto& [name, tensor] : saved.tensors) {
    INFO(name);
    turned_ones += name.find("strides/") != std::string::npos ? 1 : 0;
    REQUIRE(again.tensors.contains(name));
    CHECK(again.tensors.at(name).strides() == tensor.strides());
    CHECK(at::equal(again.tensors.at(name), tensor));
  }
  CHECK(turned_ones > 0);
}

TEST_CASE("pipelined: a message comes to the next rank as it is") {
  const Tensors sent = {at::arange(6, at::kFloat).view({2, 3}).t(), at::Tensor(),
                        at::arange(12, at::kLong).view({3, 4}).slice(1, 0, 1),
                        at::arange(24, at::kDouble).view({2, 3, 4}).permute({0, 2, 1})};
  testing::on_ranks(2, [&](Ranks& ranks) {
    Line line(ranks);
    for (int time = 0; time < 2; ++time) {  // the form goes along with the first one
      if (line.place() == 0) {
        line.behind().out->give({sample(0), sent});
        line.behind().out->settle();
        continue;
      }
      const Message came = line.ahead().in->take(sample(0));
      REQUIRE(came.tensors.size() == sent.size());
      for (std::size_t i = 0; i < sent.size(); ++i) {
        REQUIRE(came.tensors[i].defined() == sent[i].defined());
        if (!sent[i].defined()) continue;
        CHECK(at::equal(came.tensors[i], sent[i]));
        const bool dense = sent[i].is_non_overlapping_and_dense();
        CHECK(came.tensors[i].strides() == (dense ? sent[i] : sent[i].contiguous()).strides());
      }
    }
  });
}

namespace {

/// Feeds a chain's pipeline on so many ranks, each with weights of its own, from what is in flight, if anything. The
/// chain comes to what the rank of each stage has made of it. Gives what is in flight then, of all ranks.
State run_on_ranks(Chain& chain, const Method& method, int count, std::vector<std::int64_t> feeds,
                   const State* in_flight = nullptr, bool drains = true) {
  State left;
  std::map<std::string, Weight> ends;
  std::mutex mutex;
  testing::on_ranks(count, [&](Ranks& ranks) {
    const Chain own(std::ssize(chain.weights) / 2);
    for (const auto& [name, each] : own.weights) copy(chain.weights.at(name), each);
    Squares judge;
    Line line(ranks);
    Pipeline pipeline(own.graph, stage_of_nodes(own.graph, 0), own.weights, method, line, judge);
    if (in_flight != nullptr) pipeline.load(StateReader(*in_flight));
    for (std::size_t i = 0; i + 1 < feeds.size(); ++i) pipeline.feed(samples(feeds[i], feeds[i + 1]));
    if (drains) pipeline.drain();
    State state;
    StateWriter writer(state);
    pipeline.save(writer);
    std::vector<std::vector<State>> all = gather(ranks, std::vector<State>{std::move(state)});
    const std::lock_guard lock(mutex);
    CHECK((judge.back > 0) == (ranks.rank() == 0));  // which has the last stage
    for (std::vector<State>& each : all) {
      left.scalars.merge(each.front().scalars);
      left.tensors.merge(each.front().tensors);
    }
    for (std::int64_t s = 0; s < pipeline.size(); ++s)
      for (const std::string& name : pipeline.names(s))
        if (pipeline.place(s) == line.place()) CHECK(ends.emplace(name, own.weights.at(name)).second);
  });
  CHECK(ends.size() == chain.weights.size());
  for (const auto& [name, each] : chain.weights) copy(ends.at(name), each);
  return left;
}

/// From one number to another, in steps.
std::vector<std::int64_t> steps(std::int64_t first, std::int64_t last, std::int64_t step) {
  std::vector<std::int64_t> all;
  for (; first < last; first += step) all.push_back(first);
  all.push_back(last);
  return all;
}

}  // namespace

TEST_CASE("pipelined: stages on several ranks come to the bits of one") {
  for (const Mitigation mitigation : all)
    for (const int ranks : {2, 3}) {
      const bool long_one =
          ranks == 2 && (mitigation == Mitigation::none || mitigation == Mitigation::lwpv_sc);
      const std::int64_t units = long_one ? 2000 : 100;
      INFO("method " << static_cast<int>(mitigation) << ", ranks " << ranks);
      Chain chain(5), there(5);
      Squares judge;
      Pipeline pipeline = chain.pipeline(with(mitigation), judge);
      pipeline.feed(samples(0, units));
      CHECK(there.digests() != chain.digests());
      Chain in_flight(5);
      run_on_ranks(in_flight, with(mitigation), ranks, steps(0, units, 50), nullptr, false);
      CHECK(in_flight.digests() == chain.digests());
      pipeline.drain();
      run_on_ranks(there, with(mitigation), ranks, steps(0, units, 40));
      CHECK(there.digests() == chain.digests());
    }
}

TEST_CASE("pipelined: what is in flight on several ranks goes on to the same bits on as many, more or one") {
  for (const Mitigation mitigation : all) {
    INFO("method " << static_cast<int>(mitigation));
    const Method method = with(mitigation, true);
    Chain whole(7), first(7);
    Squares judge;
    Pipeline pipeline = whole.pipeline(method, judge);
    pipeline.feed(samples(0, 60));
    pipeline.drain();
    const State in_flight = run_on_ranks(first, method, 2, steps(0, 25, 10), nullptr, false);
    for (const int ranks : {1, 2, 3}) {
      Chain second(7);
      for (const auto& [name, each] : second.weights) copy(first.weights.at(name), each);
      if (ranks > 1) run_on_ranks(second, method, ranks, steps(25, 60, 10), &in_flight);
      Pipeline alone = second.pipeline(method, judge);
      if (ranks == 1) {
        alone.load(StateReader(in_flight));
        alone.feed(samples(25, 60));
        alone.drain();
      }
      CHECK(second.digests() == whole.digests());
    }
  }
}

TEST_CASE("pipelined: a rank that fails is named to its neighbours") {
  class Failing final : public Judge {
    at::Tensor loss(const Unit&, const at::Tensor&) override { throw std::runtime_error("no loss today"); }
    void passed_back(const Unit&) override {}
    void clip(Tensors&) override {}
  } judge;
  std::string heard;
  const auto feeding = [&](Ranks& ranks) {
    const Chain own(3);
    Line line(ranks);
    Pipeline pipeline(own.graph, stage_of_nodes(own.graph, 0), own.weights, with(Mitigation::none), line,
                      judge);
    try {
      pipeline.feed(samples(0, 30));
    } catch (const DistributedError& error) {
      heard = error.what();  // on the other rank alone
    }
  };
  CHECK_THROWS_WITH(testing::on_ranks(2, feeding), "no loss today");
  CHECK(heard == "rank 0 ended: no loss today");
}

TEST_CASE("pipelined: what a stage throws comes out, on whichever thread it was") {
  for (const int workers : {1, 3}) {
    const Chain chain(6);
    class Failing final : public Judge {
      at::Tensor loss(const Unit&, const at::Tensor& output) override {
        const at::AutoGradMode tracked(true);
        return output.sum();
      }
      void passed_back(const Unit&) override {}
      void clip(Tensors&) override {
        if (++calls == 40) throw std::runtime_error("a stage in trouble");
      }
      std::atomic<int> calls = 0;
    } judge;
    Pipeline pipeline = chain.pipeline(with(Mitigation::none), judge, workers);
    CHECK_THROWS_WITH(pipeline.feed(samples(0, 60)), "a stage in trouble");
  }
}

TEST_CASE("pipelined: layers become stages") {
  const Chain chain(6);
  const std::vector<int> layers = stage_of_nodes(chain.graph, 0);
  CHECK((layers == std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5}));
  CHECK((stage_of_nodes(chain.graph, 2) == std::vector<int>{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1}));
  CHECK_THROWS_WITH(stage_of_nodes(chain.graph, 7), Contains("executor.stages is 7") && Contains("6 layers"));
  CHECK(
      (executors::balanced(std::vector<double>{5, 1, 1, 1, 1, 1}, 2) == std::vector<int>{0, 1, 1, 1, 1, 1}));
  CHECK((executors::balanced(std::vector<double>{1, 1}, 5) == std::vector<int>{0, 1}));

  BatchSchema schema;
  schema.inputs = {{.name = "x", .shape = {width}}};
  GraphBuilder b(schema, 1);
  const ValueId shared = b.parameter("shared", at::ones({width, width}));
  const std::map<std::string, Attribute, std::less<>> transposed = {{"transB", std::int64_t{1}}};
  const ValueId x = b.relu(b.node("Gemm", "one", {b.input(), shared}, transposed));
  const Graph tied = b.finish(b.node("Gemm", "other", {x, shared}, transposed));
  CHECK_THROWS_WITH(stage_of_nodes(tied, 0), Contains("shared") && Contains("stages 0 and 1"));
  CHECK(stage_of_nodes(tied, 1).back() == 0);
}

}  // namespace pipelined_tests
