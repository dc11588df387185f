// Derivatives of functions. `f` is a function object that is a template of its number type T:
// f(std::span<const T>) -> T, or f(T) -> T for `derivative`. The given numbers S may carry derivatives; then
// so does the result, and a derivative within a function can be differentiated (a force out of an energy).
#pragma once

#include <trainyard/ad/dual.hpp>
#include <trainyard/ad/tape.hpp>

namespace trainyard::ad {

template <class S = double>
struct Gradient {
  S value{};
  std::vector<S> slopes;  ///< slopes by each input
};

template <class S = double>
struct Hessian {
  S value{};
  std::vector<S> slopes;
  std::vector<S> curvature;  ///< n x n, row by row
};

namespace detail {
template <class T, class F, class... X>
T evaluate(const F& f, const X&... x) {
  static_assert(
      std::invocable<const F&, const X&...>,
      "this function takes no numbers that carry a derivative: make it a template of its number type T, with "
      "an argument std::span<const T> (gradient, hessian) or T (derivative)");
  static_assert(std::same_as<std::invoke_result_t<const F&, const X&...>, T>,
                "this function loses the derivative: let it return the number type that it is given");
  return f(x...);
}
}  // namespace detail

/// Returns f and df / dx at x.
template <class F, class S>
Dual<1, S> derivative(const F& f, const S& x) {
  return detail::evaluate<Dual<1, S>>(f, Dual<1, S>(x, 0));
}

/// Computes it forward, for a few inputs, whose number is known to the compiler; allocates nothing.
template <class F, class S, std::size_t N>
Dual<static_cast<int>(N), S> gradient(const F& f, const std::array<S, N>& x) {
  using D = Dual<static_cast<int>(N), S>;
  std::array<D, N> inputs;
  for (std::size_t i = 0; i < N; ++i) inputs[i] = D(x[i], static_cast<int>(i));
  return detail::evaluate<D>(f, std::span<const D>(inputs));
}

/// Computes it in reverse, for many inputs. The tape is cleared, and its memory used.
template <class F, class S>
Gradient<S> gradient(const F& f, const std::vector<S>& x, Tape<S>& tape) {
  tape.clear();
  std::vector<Var<S>> inputs;
  inputs.reserve(x.size());
  for (const S& each : x) inputs.push_back(tape.variable(each));
  const Var<S> y = detail::evaluate<Var<S>>(f, std::span<const Var<S>>(inputs));
  tape.backward(y);
  Gradient<S> result{y.inner(), {}};
  result.slopes.reserve(x.size());
  for (const Var<S>& each : inputs) result.slopes.push_back(tape.slope(each));
  return result;
}
template <class F, class S>
Gradient<S> gradient(const F& f, const std::vector<S>& x) {
  Tape<S> tape;
  return gradient(f, x, tape);
}

/// Returns the gradient, and the slope of each of its elements along `direction`: H v, for about twice the
/// gradient's cost (forward over reverse).
template <class F, class S>
Gradient<Dual<1, S>> gradient_along(const F& f, const std::vector<S>& x, const std::vector<S>& direction) {
  std::vector<Dual<1, S>> moving;
  moving.reserve(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) moving.emplace_back(x[i], std::array<S, 1>{direction[i]});
  return gradient(f, moving);
}

/// Returns second derivatives, forward over reverse: n passes.
template <class F, class S>
Hessian<S> hessian(const F& f, const std::vector<S>& x) {
  Hessian<S> result;
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::vector<S> direction(x.size(), S(0.0));
    direction[i] = S(1.0);
    const Gradient<Dual<1, S>> row = gradient_along(f, x, direction);
    result.value = row.value.inner();
    result.slopes.push_back(row.value.slope(0));
    for (const Dual<1, S>& each : row.slopes) result.curvature.push_back(each.slope(0));
  }
  return result;
}

}  // namespace trainyard::ad
