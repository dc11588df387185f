#include "falsifier.hpp"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <trainyard/graph/graph.hpp>

namespace gpupoly {
namespace {

using namespace trainyard;

/// Numbers of single precision in [lower, upper]; where there is none, the nearest to `lower` for both.
std::pair<float, float> singles(double lower, double upper) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  auto low = static_cast<float>(lower), high = static_cast<float>(upper);
  const float nearest = low;
  if (low < lower) low = std::nextafter(low, infinity);
  if (high > upper) high = std::nextafter(high, -infinity);
  return low <= high ? std::pair(low, high) : std::pair(nearest, nearest);
}

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

class Search {
 public:
  Search(Network& network, const std::vector<std::int64_t>& shape, const Case& of)
      : network_(network),
        shape_(shape),
        case_(of),
        device_(network.parameters().empty() ? at::Device(at::kCPU)
                                             : network.parameters().front().tensor.device()) {
    std::vector<float> low, high;
    for (std::size_t i = 0; i < of.lower.size(); ++i) {
      const auto [a, b] = singles(of.lower[i], of.upper[i]);
      low.push_back(a);
      high.push_back(b);
    }
    low_ = tensor(low);
    high_ = tensor(high);
    std::vector<float> rows, constants;
    for (const Atom& atom : of.atoms) {
      rows.insert(rows.end(), atom.upper.begin(), atom.upper.end());
      constants.push_back(static_cast<float>(atom.constant_upper));
    }
    const auto atoms = static_cast<std::int64_t>(of.atoms.size());
    if (atoms > 0) rows_ = tensor(rows).reshape({atoms, -1});
    constants_ = tensor(constants);
  }

  /// The middle, corners, and points between.
  at::Tensor begin(std::int64_t count, const RandomStream& random) const {
    at::Tensor place = at::empty({count, low_.numel()});
    fill_uniform(place, random, 0.0, 1.0);
    place.narrow(0, 0, count / 2).round_();
    place[0].fill_(0.5);
    return inside(low_ + place.to(device_) * (high_ - low_));
  }
  at::Tensor inside(const at::Tensor& x) const { return at::minimum(at::maximum(x, low_), high_); }

  /// In single precision, whatever that of the network.
  at::Tensor outputs(const at::Tensor& x) {
    std::vector<std::int64_t> whole = shape_;
    whole.insert(whole.begin(), x.size(0));
    Batch batch;
    const Graph& graph = *network_.graph();
    const at::ScalarType type = graph.values[static_cast<std::size_t>(graph.inputs.front())].dtype;
    batch.inputs = {x.reshape(whole).to(type)};
    batch.indices.resize(static_cast<std::size_t>(x.size(0)));
    return network_.forward(batch, {}).to(at::kFloat);
  }

  /// What is above 0 in each row, the largest of its atoms; below or at 0 it violates the property, as far as
  /// a sum in single precision can tell.
  at::Tensor worst(const at::Tensor& outputs) const {
    if (!rows_.defined()) return outputs.sum(1) * 0;
    return std::get<0>((at::matmul(outputs, rows_.t()) + constants_).max(1));
  }

  /// Each point a step towards less of it.
  at::Tensor step(const at::Tensor& x, double size) {
    return descend(x, size, [&](const at::Tensor& y) { return worst(y).sum(); });
  }

  /// The points moved apart, each some steps towards less of a sum of the outputs that was drawn for it: where
  /// descents from one region all end alike, these begin in others (output-diversified initialization,
  /// Tashiro et al., NeurIPS 2020, section 3.1).
  at::Tensor spread(at::Tensor x, const RandomStream& random) {
    at::Tensor drawn = at::empty({x.size(0), outputs(x).size(1)});
    auto* const numbers = drawn.data_ptr<float>();
    // `begin` had elements of the stream before these.
    for (std::int64_t i = 0; i < drawn.numel(); ++i)
      numbers[i] =
          static_cast<float>(2.0 * random.uniform(static_cast<std::uint64_t>(2 * x.numel() + i)) - 1.0);
    drawn = drawn.to(device_);
    for (int i = 0; i < 5; ++i) x = descend(x, 0.25, [&](const at::Tensor& y) { return (y * drawn).sum(); });
    return x;
  }

  /// The best of the points, if it holds what it promises.
  std::optional<Counterexample> check(const at::Tensor& x) {
    const at::Tensor best = x[worst(outputs(x)).argmin().item<std::int64_t>()].unsqueeze(0);
    Counterexample found{numbers(best), numbers(outputs(best))};
    for (const Atom& atom : case_.atoms)
      if (!(at_most(atom, found.outputs) <= 0.0)) return std::nullopt;
    for (const double y : found.outputs)
      if (!std::isfinite(y)) return std::nullopt;
    return found;
  }

 private:
  template <class Goal>
  at::Tensor descend(at::Tensor x, double size, const Goal& goal) {
    const at::AutoGradMode with_gradients(true);
    x = x.detach().requires_grad_(true);
    const at::Tensor slope = torch::autograd::grad({goal(outputs(x))}, {x}, {}, {}, false, true).front();
    const at::NoGradGuard no_grad;
    if (!slope.defined()) return x.detach();
    return inside(x.detach() - slope.sign() * (high_ - low_) * size);
  }

  at::Tensor tensor(const std::vector<float>& values) const {
    return at::tensor(values, at::kFloat).to(device_);
  }

  Network& network_;
  const std::vector<std::int64_t>& shape_;
  const Case& case_;
  at::Device device_;
  at::Tensor low_, high_, rows_, constants_;
};

}  // namespace

std::optional<Counterexample> falsify(Network& network, const std::vector<std::int64_t>& shape,
                                      const Case& of, const Attack& attack, const RandomStream& random,
                                      const std::function<bool()>& stop) {
  const at::NoGradGuard no_grad;
  Search search(network, shape, of);
  if (attack.restarts == 0) return std::nullopt;
  at::Tensor x = search.begin(attack.restarts, random);
  // Those between the corners; the others begin where they are.
  const std::int64_t corners = attack.restarts / 2 + 1;
  if (corners < attack.restarts) {
    at::Tensor others = x.narrow(0, corners, attack.restarts - corners);
    others.copy_(search.spread(others, random));
  }
  for (std::int64_t step = 0; !stop(); ++step) {
    if (auto found = search.check(x)) return found;
    if (step == attack.steps) break;
    // From a quarter of the box down to a hundredth of that.
    x = search.step(x, 0.25 * std::pow(0.01, static_cast<double>(step) / static_cast<double>(attack.steps)));
  }
  return std::nullopt;
}

}  // namespace gpupoly
