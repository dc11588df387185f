// What a delay does to momentum, and how it is made up for. Kosson, Chiley, Venigalla, Hestness and Köster,
// "Pipelined Backpropagation at Scale: Training Large Models without Batches", MLSys 2021.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace pipelined {

/// Updates between a forward pass of a stage and the one that its gradient is for, counting those in which
/// other samples' gradients arrive: 0 at the loss (section 2).
constexpr std::int64_t delay(std::int64_t stage, std::int64_t stages) {
  return 2 * (stages - 1 - stage);
}

enum class Mitigation : std::uint8_t {
  none,
  stash,    ///< backward by the weights of forward (PipeDream)
  sc,       ///< spike compensation
  lwpv,     ///< forward by weights that are predicted from the velocity
  lwpw,     ///< or from their last difference
  lwpv_sc,  ///< both
  lwpw_sc,
  gsc,  ///< spike compensation with the coefficients that make it a prediction
};
constexpr bool stashes(Mitigation m) {
  return m == Mitigation::stash;
}
constexpr bool predicts_by_velocity(Mitigation m) {
  return m == Mitigation::lwpv || m == Mitigation::lwpv_sc;
}
constexpr bool predicts_by_weights(Mitigation m) {
  return m == Mitigation::lwpw || m == Mitigation::lwpw_sc;
}

/// Hyper-parameters of stochastic gradient descent with momentum.
struct Rates {
  double lr = 0.0;
  double momentum = 0.0;
};

/// From batches of one size to updates of another (section 3): the same decay of the velocity for each sample,
/// and the same contribution of each.
inline Rates scaled(const Rates& reference, double reference_size, double size) {
  const double momentum = std::pow(reference.momentum, size / reference_size);
  return {reference.lr * (1.0 - momentum) * size / ((1.0 - reference.momentum) * reference_size), momentum};
}

/// Of an update w <- w - lr (a v + b g), where v <- m v + g came before: a = 1, b = 0 is the plain one.
struct Spike {
  double a = 1.0;
  double b = 0.0;
};

/// Makes up for what a gradient that arrives `delay` updates late would have done in them; a delay of one gives
/// Nesterov's momentum. Nothing without momentum (0^0 = 1).
inline Spike compensated(double momentum, double delay) {
  if (momentum == 0.0) return {delay == 0.0 ? 1.0 : 0.0, 1.0 - (delay == 0.0 ? 1.0 : 0.0)};
  const double a = std::pow(momentum, delay);
  return {a, (1.0 - a) / (1.0 - momentum)};
}

/// Whose trajectory is the one that prediction over `horizon` runs on, at one delay and rate. Needs momentum.
inline Spike as_prediction(double momentum, double horizon) {
  return {1.0 - horizon * (1.0 - momentum) / momentum, horizon / momentum};
}

inline Spike spike(Mitigation mitigation, double momentum, double horizon) {
  switch (mitigation) {
    case Mitigation::sc:
    case Mitigation::lwpv_sc:
    case Mitigation::lwpw_sc: return compensated(momentum, horizon);
    case Mitigation::gsc: return as_prediction(momentum, horizon);
    default: return {};
  }
}

/// One update of n weights: weight decay by the weights as they are now, joined to the gradient.
template <class T>
void update(T* w, T* v, const T* g, std::size_t n, const Rates& rates, T decay, const Spike& spike) {
  const T m = static_cast<T>(rates.momentum), va = static_cast<T>(rates.lr * spike.a),
          gb = static_cast<T>(rates.lr * spike.b);
  for (std::size_t i = 0; i < n; ++i) {
    const T gradient = g[i] + decay * w[i];
    v[i] = m * v[i] + gradient;
    w[i] -= va * v[i] + gb * gradient;
  }
}

/// The weights that are expected `horizon` updates ahead: w - lr horizon v.
template <class T>
void predict_by_velocity(T* to, const T* w, const T* v, std::size_t n, double lr, double horizon) {
  const T ahead = static_cast<T>(lr * horizon);
  for (std::size_t i = 0; i < n; ++i) to[i] = w[i] - ahead * v[i];
}

/// The same from the weights before the last update: w + horizon (w - before).
template <class T>
void predict_by_weights(T* to, const T* w, const T* before, std::size_t n, double horizon) {
  const T ahead = static_cast<T>(horizon);
  for (std::size_t i = 0; i < n; ++i) to[i] = w[i] + ahead * (w[i] - before[i]);
}

}  // namespace pipelined
