#include "measure.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <trainyard/dataset.hpp>
#include <trainyard/error.hpp>
#include <trainyard/forward_context.hpp>
#include <trainyard/network.hpp>

#include "lib/fnv1a.hpp"

namespace srifty {
namespace {

using namespace trainyard;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile_of(values, 0.5);
}

/// Notes when the gradient of each parameter is computed, and how many passes the network had made until then. It
/// reads the clock, and changes no gradient.
class GradientClock {
 public:
  struct Moment {
    Clock::time_point time;
    std::int64_t passes = 0;
  };
  using Moments = std::vector<Moment>;

  explicit GradientClock(Network& network) : network_(network) {
    for (const NamedTensor& each : network.parameters()) tensors_.push_back(each.tensor);
    moments_.resize(tensors_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      hooks_.push_back(tensors_[i].register_hook([this, i](const at::Tensor&) {
        moments_[i].push_back({Clock::now(), passes_});
      }));
    network_.add_tap(this, [this](const NodeActivity& node) {
      if (first_.empty()) first_ = node.node;
      passes_ += first_ == node.node ? 1 : 0;
    });
  }
  ~GradientClock() {
    network_.remove_tap(this);
    for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].remove_hook(hooks_[i]);
  }
  GradientClock(const GradientClock&) = delete;
  GradientClock& operator=(const GradientClock&) = delete;

  const std::vector<Moments>& moments() const { return moments_; }
  void clear() {
    for (Moments& each : moments_) each.clear();
  }

 private:
  Network& network_;
  std::vector<at::Tensor> tensors_;
  std::vector<unsigned> hooks_;
  std::vector<Moments> moments_;
  std::string first_;  ///< the node that each pass begins with
  std::int64_t passes_ = 0;
};

/// The samples of several batches as one.
class Samples {
 public:
  explicit Samples(const std::vector<Batch>& batches) {
    for (std::size_t field = 0; field < batches.front().inputs.size(); ++field) {
      std::vector<at::Tensor> rows;
      rows.reserve(batches.size());
      for (const Batch& each : batches) rows.push_back(each.inputs[field]);
      all_.inputs.push_back(at::cat(rows));
    }
    if (batches.front().target.defined()) {
      std::vector<at::Tensor> rows;
      rows.reserve(batches.size());
      for (const Batch& each : batches) rows.push_back(each.target);
      all_.target = at::cat(rows);
    }
    for (const Batch& each : batches)
      all_.indices.insert(all_.indices.end(), each.indices.begin(), each.indices.end());
  }

  std::int64_t size() const { return all_.size(); }

  Batch first(std::int64_t count) const {
    Batch made;
    for (const at::Tensor& each : all_.inputs) made.inputs.push_back(each.narrow(0, 0, count));
    if (all_.target.defined()) made.target = all_.target.narrow(0, 0, count);
    made.indices.assign(all_.indices.begin(), all_.indices.begin() + count);
    made.weight = static_cast<double>(count);
    return made;
  }

 private:
  Batch all_;
};

/// Times of whole steps, by the gradient that is computed last in each micro-batch.
struct Steps {
  std::vector<double> seconds;  ///< empty where no gradient came from autograd
  std::int64_t micros = 1;
};

/// Returns the times between steps that had no evaluation between them, which is to be seen by the passes.
Steps steps_of(const GradientClock& clock, std::int64_t trained) {
  const GradientClock::Moments* last = nullptr;
  for (const GradientClock::Moments& each : clock.moments())
    if (!each.empty() && (last == nullptr || each.back().time > last->back().time)) last = &each;
  if (last == nullptr) return {};
  Steps steps;
  steps.micros = std::max<std::int64_t>(1, std::ssize(*last) / trained);
  const auto micros = static_cast<std::size_t>(steps.micros);
  const auto passes = [&](std::size_t i) { return (*last)[i].passes - (*last)[i - micros].passes; };
  // The first step has what is made once, and counts where there is no other.
  for (std::size_t i = last->size() > 2 * micros ? 2 * micros : micros; i < last->size(); i += micros)
    if (passes(i) <= steps.micros)
      steps.seconds.push_back(
          std::chrono::duration<double>((*last)[i].time - (*last)[i - micros].time).count());
  return steps;
}

/// Passes of the network with batches of one size.
class Passes {
 public:
  Passes(Network& network, GradientClock& clock) : network_(network), clock_(clock) {
    for (const NamedTensor& each : network.parameters()) parameters_.push_back(each.tensor);
    shares_.resize(parameters_.size());
  }

  /// Times passes; where the middle half of them lies more than 15 % apart something else ran beside them, and they
  /// are timed anew, at most four times in all, of which the most alike count. Nothing where `stop` says so before
  /// that.
  std::optional<BatchProfile> time(const Batch& batch, std::int64_t repeats,
                                   const std::function<bool()>& stop) {
    std::optional<Timed> best;
    std::vector<std::vector<double>> shares;
    for (int attempt = 0; attempt < 4 && !(best && best->apart <= 0.15); ++attempt) {
      std::optional<Timed> timed = time_once(batch, repeats, stop);
      if (!timed) return std::nullopt;
      if (best && best->apart <= timed->apart) continue;
      best = std::move(timed);
      shares = shares_;
    }
    shares_ = std::move(shares);
    return best->profile;
  }

  /// Returns after which share of the backward pass each gradient was there, in the last size that was timed:
  /// 1 for a parameter that has none.
  std::vector<double> ready() const {
    std::vector<double> shares;
    for (const std::vector<double>& each : shares_) shares.push_back(each.empty() ? 1.0 : median(each));
    return shares;
  }

 private:
  struct Timed {
    BatchProfile profile;
    double apart = 0.0;  ///< (75th - 25th percentile) / median of forward and backward together
  };

  std::optional<Timed> time_once(const Batch& batch, std::int64_t repeats,
                                 const std::function<bool()>& stop) {
    constexpr std::int64_t warm = 3;
    std::vector<double> forward, backward, both;
    for (auto& each : shares_) each.clear();
    for (std::int64_t i = 0; i < warm + repeats; ++i) {
      if (stop()) return std::nullopt;
      const auto [f, b] = pass(batch, i >= warm);
      if (i < warm) continue;
      forward.push_back(f);
      backward.push_back(b);
      both.push_back(f + b);
    }
    std::sort(both.begin(), both.end());
    const auto apart = [&](double low, double high) {
      return (quantile_of(both, high) - quantile_of(both, low)) / quantile_of(both, 0.5);
    };
    return Timed{{batch.size(), median(forward), median(backward), apart(0.1, 0.9)}, apart(0.25, 0.75)};
  }

  std::pair<double, double> pass(const Batch& batch, bool counted) {
    clock_.clear();
    const auto begin = Clock::now();
    const at::Tensor output = network_.forward(batch, {.training = true});
    const double forward = seconds_since(begin);
    if (output.layout() != at::kStrided)
      throw ConfigError("the network's output is sparse in training, and such a network cannot be profiled");
    const at::Tensor direction =
        at::full_like(output, 1.0 / static_cast<double>(std::max<std::int64_t>(1, output.numel())));
    const auto middle = Clock::now();
    torch::autograd::grad({output}, parameters_, {direction}, /*retain_graph=*/false, /*create_graph=*/false,
                          /*allow_unused=*/true);
    const double backward = seconds_since(middle);
    for (std::size_t i = 0; counted && i < shares_.size(); ++i)
      if (!clock_.moments()[i].empty())
        shares_[i].push_back(std::clamp(
            std::chrono::duration<double>(clock_.moments()[i].back().time - middle).count() / backward, 0.0,
            1.0));
    return {forward, backward};
  }

  Network& network_;
  GradientClock& clock_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::vector<double>> shares_;
};

/// Returns the bytes of all nodes' outputs for a sample; 0 where the network does not show them.
double activation_bytes(Network& network, const Batch& batch) {
  double bytes = 0.0;
  const int owner = 0;
  if (!network.add_tap(&owner, [&](const NodeActivity& node) {
        for (const at::Tensor& each : node.outputs) bytes += static_cast<double>(each.nbytes());
      }))
    return 0.0;
  network.forward(batch, {.training = true});
  network.remove_tap(&owner);
  return bytes / static_cast<double>(batch.size());
}

/// Returns the seconds in which the dataset gives a sample, read as many at a time as a micro-batch has.
double input_seconds(Workshop& shop, std::int64_t samples, const RandomStream& random) {
  const Dataset& dataset = shop.dataset("train");
  std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(samples, dataset.size())));
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    const auto begin = Clock::now();
    dataset.read(indices, {.random = random});
    seconds.push_back(seconds_since(begin) / static_cast<double>(indices.size()));
  }
  return median(seconds);
}

/// Returns the sizes to time: first the run's own micro-batch, which the rest of a step is told by; then those that
/// were asked for, or from an eighth to twice of it, no more than there are samples.
std::vector<std::int64_t> sizes_of(const Measurement& how, std::int64_t micro, std::int64_t available) {
  std::set<std::int64_t> others(how.batches.begin(), how.batches.end());
  if (others.empty())
    for (const std::int64_t each : {micro / 8, micro / 4, micro / 2, 2 * micro})
      if (each >= 1) others.insert(std::min(each, available));
  if (!others.empty() && *others.rbegin() > available)
    throw ConfigError("a batch of " + std::to_string(*others.rbegin()) +
                      " is to be timed, and the training data has " + std::to_string(available) + " samples");
  others.erase(micro);
  std::vector<std::int64_t> sizes = {micro};
  sizes.insert(sizes.end(), others.begin(), others.end());
  return sizes;
}

/// Trains `most` steps, or as many as the budget of the run has, halved until they fit, but at least three.
void train_at_most(Workshop& shop, std::int64_t most, const std::function<void(std::int64_t)>& look) {
  bool trained = false;
  for (std::int64_t steps = most; !trained; steps = std::max<std::int64_t>(3, steps / 2)) try {
      shop.train(steps, [&] {
        trained = true;
        look(steps);
      });
      return;
    } catch (const ConfigError&) {  // the budget has fewer
      if (trained || steps <= 3) throw;
    }
}

/// Splits the time of whole steps: what is neither passes nor reading of data is the rest.
void set_steps(Profile& profile, const Steps& steps, const BatchProfile& own) {
  const double typical = median(steps.seconds);
  for (const double each : steps.seconds) profile.steps.push_back(each / typical);
  std::sort(profile.steps.begin(), profile.steps.end());
  const auto micros = static_cast<double>(steps.micros);
  profile.rest = std::max(0.0, typical - micros * (own.forward + own.backward));
  const double reading = profile.input * static_cast<double>(own.samples) * micros;
  profile.input_overlaps = reading > profile.rest;
  if (!profile.input_overlaps) profile.rest -= reading;
}

}  // namespace

std::string model_digest(Network& network) {
  lib::Fnv1a hash;
  for (const NamedTensor& each : network.parameters()) {
    hash.update(each.name);
    for (const std::int64_t size : each.tensor.sizes()) hash.update(" " + std::to_string(size));
    hash.update(c10::toString(each.tensor.scalar_type())).update("\n");
  }
  return hash.hex();
}

Profile measure(Workshop& shop, const Measurement& how, const RandomStream& random) {
  Network& network = shop.network();
  Profile profile;
  profile.model = model_digest(network);
  for (const NamedTensor& each : network.parameters()) {
    profile.weight_bytes += static_cast<double>(each.tensor.nbytes());
    profile.gradients.push_back({static_cast<double>(each.tensor.nbytes()), 1.0});
  }
  const std::int64_t micro = shop.batches("train", 1).front().size();
  const std::int64_t most =
      how.batches.empty() ? 2 * micro : *std::max_element(how.batches.begin(), how.batches.end());
  const Samples samples(shop.batches("train", (std::max(most, micro) + micro - 1) / micro));
  const std::vector<std::int64_t> sizes = sizes_of(how, micro, samples.size());
  profile.input = input_seconds(shop, micro, random);

  Steps steps;
  GradientClock clock(network);
  train_at_most(shop, how.steps + 2, [&](std::int64_t trained) {
    steps = steps_of(clock, trained);
    if (steps.seconds.empty()) return;
    profile.sample_bytes = activation_bytes(network, samples.first(1));
    Passes passes(network, clock);
    for (const std::int64_t size : sizes) {
      const auto timed = passes.time(samples.first(size), how.repeats, [&] { return shop.stopping(); });
      if (!timed) return;
      if (size == micro) {
        set_steps(profile, steps, *timed);
        const std::vector<double> ready = passes.ready();
        for (std::size_t i = 0; i < ready.size(); ++i) profile.gradients[i].ready = ready[i];
      }
      profile.batches.push_back(*timed);
      shop.progress(std::ssize(profile.batches), std::ssize(sizes));
    }
  });
  if (steps.seconds.empty() && !shop.stopping())
    throw ConfigError("no gradient came from autograd: profile the run with [executor] type = \"eager\"");
  std::sort(profile.batches.begin(), profile.batches.end(),
            [](const BatchProfile& a, const BatchProfile& b) { return a.samples < b.samples; });
  return profile;
}

}  // namespace srifty
