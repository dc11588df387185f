// The functions of <cmath> with their derivatives. They are found by the type of their argument, so that a
// template says `using std::exp; exp(x)` for plain numbers and these alike. Included by number.hpp.
#pragma once

#include <trainyard/ad/number.hpp>

namespace trainyard::ad {

namespace functions {

using std::abs, std::acos, std::asin, std::atan, std::atan2, std::cbrt, std::cos, std::cosh, std::erf,
    std::exp, std::expm1, std::hypot, std::log, std::log1p, std::pow, std::sin, std::sinh, std::sqrt,
    std::tan, std::tanh;

struct Sin {
  template <class T>
  T operator()(const T& x) const {
    return sin(x);
  }
  template <class T>
  std::array<T, 1> partials(const T&, const T& x) const {
    return {T(cos(x))};
  }
};
struct Cos {
  template <class T>
  T operator()(const T& x) const {
    return cos(x);
  }
  template <class T>
  std::array<T, 1> partials(const T&, const T& x) const {
    return {T(-sin(x))};
  }
};
struct Tan {
  template <class T>
  T operator()(const T& x) const {
    return tan(x);
  }
  template <class T>
  std::array<T, 1> partials(const T& y, const T&) const {
    return {T(1.0 + y * y)};
  }
};
struct Asin {
  template <class T>
  T operator()(const T& x) const {
    return asin(x);
  }
  template <class T>
  std::array<T, 1> partials(const T&, const T& x) const {
    return {T(1.0 / sqrt(1.0 - x * x))};
  }
};
struct Acos {
  template <class T>
  T operator()(const T& x) const {
    return acos(x);
  }
  template <class T>
  std::array<T, 1> partials(const T&, const T& x) const {
    return {T(-1.0 / sqrt(1.0 - x * x))};
  }
};
struct Atan {
  template <class T>
  T operator()(const T& x) const {
    return atan(x);
  }
  template <class T>
  std::array<T, 1> partials(const T&, const T& x) const {
    return {T(1.0 / (1.0 + x * x))};
  }
};
struct Sinh {
  template <class T>
  T operator()(const T& x) const {
    return sinh(x);
  }
  template <class T>
  std::array<T, 1> partials(const T&, const T& x) const {
    return {T(cosh(x))};
  }
};
struct Cosh {
  template <class T>
  T operator()(const T& x) const {
    return cosh(x);
  }
  template <class T>
  std::array<T, 1> partials(const T&, const T& x) const {
    return {T(sinh(x))};
  }
};
struct Tanh {
  template <class T>
  T operator()(const T& x) const {
    return tanh(x);
  }
  template <class T>
  std::array<T, 1> partials(const T& y, const T&) const {
    return {T(1.0 - y * y)};
  }
};
struct Exp {
  template <class T>
  T operator()(const T& x) const {
    return exp(x);
  }
  template <class T>
  std::array<T, 1> partials(const T& y, const T&) const {
    return {T(y)};
  }
};
struct Expm1 {
  template <class T>
  T operator()(const T& x) const {
    return expm1(x);
  }
  template <class T>
  std::array<T, 1> partials(const T&, const T& x) const {
    return {T(exp(x))};
  }
};
struct Log {
  template <class T>
  T operator()(const T& x) const {
    return log(x);
  }
  template <class T>
  std::array<T, 1> partials(const T&, const T& x) const {
    return {T(1.0 / x)};
  }
};
struct Log1p {
  template <class T>
  T operator()(const T& x) const {
    return log1p(x);
  }
  template <class T>
  std::array<T, 1> partials(const T&, const T& x) const {
    return {T(1.0 / (1.0 + x))};
  }
};
struct Sqrt {
  template <class T>
  T operator()(const T& x) const {
    return sqrt(x);
  }
  template <class T>
  std::array<T, 1> partials(const T& y, const T&) const {
    return {T(0.5 / y)};
  }
};
struct Cbrt {
  template <class T>
  T operator()(const T& x) const {
    return cbrt(x);
  }
  template <class T>
  std::array<T, 1> partials(const T& y, const T&) const {
    return {T(1.0 / (3.0 * y * y))};
  }
};
struct Erf {
  template <class T>
  T operator()(const T& x) const {
    return erf(x);
  }
  template <class T>
  std::array<T, 1> partials(const T&, const T& x) const {
    return {T(2.0 * std::numbers::inv_sqrtpi * exp(-(x * x)))};
  }
};
/// The derivative at 0 is 0, as LibTorch has it.
struct Abs {
  template <class T>
  T operator()(const T& x) const {
    return abs(x);
  }
  template <class T>
  std::array<T, 1> partials(const T&, const T& x) const {
    const auto sign = value(x);
    return {T(sign > 0 ? 1.0 : sign < 0 ? -1.0 : 0.0)};
  }
};
struct Atan2 {
  template <class T>
  T operator()(const T& y, const T& x) const {
    return atan2(y, x);
  }
  template <class T>
  std::array<T, 2> partials(const T&, const T& y, const T& x) const {
    const T square = x * x + y * y;
    return {x / square, -y / square};
  }
};
struct Hypot {
  template <class T>
  T operator()(const T& a, const T& b) const {
    return hypot(a, b);
  }
  template <class T>
  std::array<T, 2> partials(const T& y, const T& a, const T& b) const {
    return {a / y, b / y};
  }
};
/// Computes a^b. Its derivative by b is 0 where a is 0; that by a is 0 where b is.
struct Pow {
  template <class T>
  T operator()(const T& a, const T& b) const {
    return pow(a, b);
  }
  template <class T>
  std::array<T, 2> partials(const T& y, const T& a, const T& b) const {
    return {value(b) == 0 ? T(0.0) : T(b * pow(a, b - 1.0)), value(a) == 0 ? T(0.0) : T(y * log(a))};
  }
};
struct PowConstant {
  double exponent;
  template <class T>
  T operator()(const T& a) const {
    return pow(a, exponent);
  }
  template <class T>
  std::array<T, 1> partials(const T&, const T& a) const {
    if (exponent == 0) return {T(0.0)};
    return {T(exponent * pow(a, exponent - 1.0))};
  }
};

}  // namespace functions

template <Active A>
A sin(const A& x) {
  return call(functions::Sin{}, x);
}
template <Active A>
A cos(const A& x) {
  return call(functions::Cos{}, x);
}
template <Active A>
A tan(const A& x) {
  return call(functions::Tan{}, x);
}
template <Active A>
A asin(const A& x) {
  return call(functions::Asin{}, x);
}
template <Active A>
A acos(const A& x) {
  return call(functions::Acos{}, x);
}
template <Active A>
A atan(const A& x) {
  return call(functions::Atan{}, x);
}
template <Active A>
A sinh(const A& x) {
  return call(functions::Sinh{}, x);
}
template <Active A>
A cosh(const A& x) {
  return call(functions::Cosh{}, x);
}
template <Active A>
A tanh(const A& x) {
  return call(functions::Tanh{}, x);
}
template <Active A>
A exp(const A& x) {
  return call(functions::Exp{}, x);
}
template <Active A>
A expm1(const A& x) {
  return call(functions::Expm1{}, x);
}
template <Active A>
A log(const A& x) {
  return call(functions::Log{}, x);
}
template <Active A>
A log1p(const A& x) {
  return call(functions::Log1p{}, x);
}
template <Active A>
A sqrt(const A& x) {
  return call(functions::Sqrt{}, x);
}
template <Active A>
A cbrt(const A& x) {
  return call(functions::Cbrt{}, x);
}
template <Active A>
A erf(const A& x) {
  return call(functions::Erf{}, x);
}
template <Active A>
A abs(const A& x) {
  return call(functions::Abs{}, x);
}
template <Active A>
A fabs(const A& x) {
  return abs(x);
}

// One of the two arguments may be a constant.
template <class A, class B>
requires Active<A> || Active<B>
auto atan2(const A& y, const B& x) {
  using N = std::conditional_t<ConstantOf<A, B>, B, A>;
  return call(functions::Atan2{}, N(y), N(x));
}
template <class A, class B>
requires Active<A> || Active<B>
auto hypot(const A& a, const B& b) {
  using N = std::conditional_t<ConstantOf<A, B>, B, A>;
  return call(functions::Hypot{}, N(a), N(b));
}
template <class A, class B>
requires Active<A> || Active<B>
auto pow(const A& a, const B& b) {
  if constexpr (std::is_arithmetic_v<B>) {
    return call(functions::PowConstant{static_cast<double>(b)}, a);
  } else {
    using N = std::conditional_t<ConstantOf<A, B>, B, A>;
    return call(functions::Pow{}, N(a), N(b));
  }
}
template <class A, class B>
requires Active<A> || Active<B>
auto max(const A& a, const B& b) {
  using N = std::conditional_t<ConstantOf<A, B>, B, A>;
  return a < b ? N(b) : N(a);
}
template <class A, class B>
requires Active<A> || Active<B>
auto min(const A& a, const B& b) {
  using N = std::conditional_t<ConstantOf<A, B>, B, A>;
  return b < a ? N(b) : N(a);
}
template <Active A>
bool isfinite(const A& x) {
  return std::isfinite(value(x));
}
template <Active A>
bool isnan(const A& x) {
  return std::isnan(value(x));
}

// Functions that jump cannot be differentiated.
#define TRAINYARD_AD_JUMPS(NAME)                                                                       \
  template <Active A>                                                                                  \
  A NAME(const A& x) {                                                                                 \
    static_assert(                                                                                     \
        detail::no_type<A>, #NAME                                                                      \
        "() does not propagate the derivative: it jumps. Call it on value(x) where a plain number is " \
        "meant, or give your function a derivative of its own (call, `partials`)");                    \
    return x;                                                                                          \
  }
TRAINYARD_AD_JUMPS(floor)
TRAINYARD_AD_JUMPS(ceil)
TRAINYARD_AD_JUMPS(round)
TRAINYARD_AD_JUMPS(lround)
TRAINYARD_AD_JUMPS(trunc)
TRAINYARD_AD_JUMPS(rint)
TRAINYARD_AD_JUMPS(nearbyint)
#undef TRAINYARD_AD_JUMPS

}  // namespace trainyard::ad
