// Forward derivatives: a number and its slopes in N directions, computed side by side. They suit few inputs;
// a Dual<N> is a value without an allocation, and for a fixed N the compiler makes vector code of it.
//
//   Dual<2> x(1.5, 0), y(2.0, 1);      // inputs 0 and 1
//   (x * sin(y)).slope(1);             // d / dy
#pragma once

#include <trainyard/ad/number.hpp>

namespace trainyard::ad {

template <int N, class T>
class Dual {
  static_assert(
      N > 0 && (std::is_floating_point_v<T> || Active<T>),
      "a derivative is of real numbers: take Dual<N, double>, Dual<N, float> or, for one of a derivative, a "
      "Dual or Var in place of them");

 public:
  using Inner = T;

  /// Makes a constant.
  constexpr Dual() = default;
  template <ConstantOf<Dual> S>
  constexpr Dual(const S& constant) : inner_(constant) {}  // NOLINT: as numbers convert
  /// Makes the input number `direction`, from 0.
  constexpr Dual(const T& inner, int direction) : inner_(inner) {
    slopes_[static_cast<std::size_t>(direction)] = T(1.0);
  }
  /// Makes a number that moves with these slopes.
  constexpr Dual(const T& inner, const std::array<T, N>& slopes) : inner_(inner), slopes_(slopes) {}

  constexpr const T& inner() const { return inner_; }
  constexpr const T& slope(int direction) const { return slopes_[static_cast<std::size_t>(direction)]; }
  constexpr const std::array<T, N>& slopes() const { return slopes_; }

  template <class U>
  requires std::is_arithmetic_v<U>
  operator U() const {
    static_assert(
        detail::no_type<U>,
        "a plain number made of this one does not propagate the derivative: keep its type, or take value(x) "
        "where a plain number is meant");
    return {};
  }
  template <class S>
  Dual operator%(const S&) const {
    static_assert(detail::no_type<S>, "% does not propagate the derivative: it is of integers");
    return {};
  }

  // Operators make one number of others by these (number.hpp).
  static constexpr Dual sum(const Dual& a, const Dual& b) {
    Dual y(a.inner_ + b.inner_);
    for (std::size_t i = 0; i < N; ++i) y.slopes_[i] = a.slopes_[i] + b.slopes_[i];
    return y;
  }
  static constexpr Dual difference(const Dual& a, const Dual& b) {
    Dual y(a.inner_ - b.inner_);
    for (std::size_t i = 0; i < N; ++i) y.slopes_[i] = a.slopes_[i] - b.slopes_[i];
    return y;
  }
  static constexpr Dual moved(const T& y, const Dual& a) { return Dual(y, a.slopes_); }
  static constexpr Dual scaled(const T& inner, const T& by, const Dual& a) {
    Dual y(inner);
    for (std::size_t i = 0; i < N; ++i) y.slopes_[i] = by * a.slopes_[i];
    return y;
  }
  static constexpr Dual joined(const T& inner, const T& by_a, const Dual& a, const T& by_b, const Dual& b) {
    Dual y(inner);
    for (std::size_t i = 0; i < N; ++i) y.slopes_[i] = by_a * a.slopes_[i] + by_b * b.slopes_[i];
    return y;
  }
  static constexpr Dual joined(const T& inner, std::span<const T> partials, std::span<const Dual> inputs) {
    Dual y(inner);
    for (std::size_t k = 0; k < inputs.size(); ++k)
      for (std::size_t i = 0; i < N; ++i) y.slopes_[i] = y.slopes_[i] + partials[k] * inputs[k].slopes_[i];
    return y;
  }
  template <class B>
  static constexpr Dual dot(std::span<const Dual> a, std::span<const B> b) {
    Dual y;
    for (std::size_t k = 0; k < a.size(); ++k) y += a[k] * b[k];
    return y;
  }

 private:
  T inner_{};
  std::array<T, N> slopes_{};
};

}  // namespace trainyard::ad
