// Numbers that carry a derivative: the common part of Dual (dual.hpp, forward) and Var (tape.hpp, reverse),
// their operators, and functions with a derivative of their own.
//
// A function written as a template of its number type can be differentiated: branches, loops, arrays and
// assignments are those of C++, and each operation that runs carries its derivative with it. At a kink the
// derivative is that of the branch taken. These headers need no LibTorch but for loss.hpp.
#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <numbers>
#include <span>
#include <type_traits>

namespace trainyard::ad {

template <int N, class T = double>
class Dual;
template <class T = double>
class Var;

namespace detail {
template <class>
inline constexpr bool active = false;
template <int N, class T>
inline constexpr bool active<Dual<N, T>> = true;
template <class T>
inline constexpr bool active<Var<T>> = true;

template <class>
inline constexpr bool no_type = false;

/// True if S is a constant to A: a plain number, or, where derivatives are nested, a type that A is made of.
template <class S, class A>
consteval bool constant_of() {
  if constexpr (std::is_arithmetic_v<S>) {
    return true;
  } else if constexpr (active<A>) {
    return std::same_as<S, typename A::Inner> || constant_of<S, typename A::Inner>();
  } else {
    return false;
  }
}
}  // namespace detail

/// A number that carries a derivative.
template <class A>
concept Active = detail::active<A>;
template <class S, class A>
concept ConstantOf = Active<A> && detail::constant_of<S, A>();

/// Returns the plain number in it, which comparisons use. Functions that read it lose the derivative.
template <class S>
requires std::is_arithmetic_v<S>
constexpr S value(S x) {
  return x;
}
template <Active A>
constexpr auto value(const A& x) {
  return value(x.inner());
}

// Operators. `joined` of a number type makes y of inputs and dy / d(input).
template <Active A>
A operator+(const A& a, const A& b) {
  return A::sum(a, b);
}
template <Active A>
A operator-(const A& a, const A& b) {
  return A::difference(a, b);
}
template <Active A>
A operator*(const A& a, const A& b) {
  return A::joined(a.inner() * b.inner(), b.inner(), a, a.inner(), b);
}
template <Active A>
A operator/(const A& a, const A& b) {
  using T = typename A::Inner;
  const T y = a.inner() / b.inner(), slope = 1.0 / b.inner();
  return A::joined(y, slope, a, -y * slope, b);
}
template <Active A>
A operator-(const A& a) {
  return A::scaled(-a.inner(), typename A::Inner(-1.0), a);
}
template <Active A>
A operator+(const A& a) {
  return a;
}
template <Active A, ConstantOf<A> S>
A operator+(const A& a, const S& s) {
  return A::moved(a.inner() + s, a);
}
template <Active A, ConstantOf<A> S>
A operator+(const S& s, const A& a) {
  return A::moved(s + a.inner(), a);
}
template <Active A, ConstantOf<A> S>
A operator-(const A& a, const S& s) {
  return A::moved(a.inner() - s, a);
}
template <Active A, ConstantOf<A> S>
A operator-(const S& s, const A& a) {
  return A::scaled(s - a.inner(), typename A::Inner(-1.0), a);
}
template <Active A, ConstantOf<A> S>
A operator*(const A& a, const S& s) {
  return A::scaled(a.inner() * s, typename A::Inner(s), a);
}
template <Active A, ConstantOf<A> S>
A operator*(const S& s, const A& a) {
  return a * s;
}
template <Active A, ConstantOf<A> S>
A operator/(const A& a, const S& s) {
  return A::scaled(a.inner() / s, 1.0 / typename A::Inner(s), a);
}
template <Active A, ConstantOf<A> S>
A operator/(const S& s, const A& a) {
  const typename A::Inner y = s / a.inner();
  return A::scaled(y, -y / a.inner(), a);
}

template <Active A, class S>
requires std::same_as<S, A> || ConstantOf<S, A> A& operator+=(A& a, const S& s) {
  return a = a + s;
}
template <Active A, class S>
requires std::same_as<S, A> || ConstantOf<S, A> A& operator-=(A& a, const S& s) {
  return a = a - s;
}
template <Active A, class S>
requires std::same_as<S, A> || ConstantOf<S, A> A& operator*=(A& a, const S& s) {
  return a = a * s;
}
template <Active A, class S>
requires std::same_as<S, A> || ConstantOf<S, A> A& operator/=(A& a, const S& s) {
  return a = a / s;
}

template <Active A, class S>
requires std::same_as<S, A> || ConstantOf<S, A>
bool operator==(const A& a, const S& s) {
  return value(a) == value(s);
}
template <Active A, class S>
requires std::same_as<S, A> || ConstantOf<S, A>
auto operator<=>(const A& a, const S& s) {
  return value(a) <=> value(s);
}

/// Returns y = f(x...), with the derivative that f itself gives in `partials`, or else that of its
/// operations. `partials` gets y and the inputs, and returns dy / dx of each as a std::array:
///
///   struct Softplus {
///     template <class T> T operator()(const T& x) const { using std::exp, std::log1p; return log1p(exp(x)); }
///     template <class T> std::array<T, 1> partials(const T&, const T& x) const { using std::exp; return {1 / (1 + exp(-x))}; }
///   };
///
/// T is a plain number or, where derivatives are nested, one that carries a derivative: so second derivatives are
/// those of `partials`. Inputs are all of one type.
template <class F, class A>
requires std::is_arithmetic_v<A>
auto call(const F& f, const A& x, const std::same_as<A> auto&... more) {
  return f(x, more...);
}
template <class F, Active A>
A call(const F& f, const A& x, const std::same_as<A> auto&... more) {
  using T = typename A::Inner;
  if constexpr (requires(T inner) { f.partials(inner, x.inner(), more.inner()...); }) {
    const T y = call(f, x.inner(), more.inner()...);
    const std::array<T, 1 + sizeof...(more)> partials = f.partials(y, x.inner(), more.inner()...);
    const std::array<A, 1 + sizeof...(more)> inputs{x, more...};
    return A::joined(y, std::span<const T>(partials), std::span<const A>(inputs));
  } else {
    static_assert(
        std::invocable<const F&, const A&, decltype(more)...>,
        "this function takes no number that carries a derivative: make it a template of its number type, or "
        "give it a derivative of its own, `partials`");
    using Result = std::invoke_result_t<const F&, const A&, decltype(more)...>;
    static_assert(std::same_as<Result, A>,
                  "this function loses the derivative: let it return the number type that it is given");
    return f(x, more...);
  }
}

/// Returns the sum of a[i] b[i], of equal lengths, as one operation of its inputs.
template <class A, class B>
requires std::same_as<A, B> || ConstantOf<B, A> A dot(std::span<const A> a, std::span<const B> b) {
  if constexpr (Active<A>) {
    return A::dot(a, b);
  } else {
    A sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }
}

}  // namespace trainyard::ad

#include <trainyard/ad/functions.hpp>
