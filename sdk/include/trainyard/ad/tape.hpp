// Reverse derivatives: each operation is written to a tape, which is read backwards once for the slopes of
// one output by all inputs. They suit many inputs: the cost is a small multiple of the function's.
//
// An array of numbers is a std::vector<Var<>>: to read an element copies a handle, writes nothing to the tape, and all
// reads add to the one slope of that input, so that a loop over n elements costs O(n). To write an element replaces the
// handle.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include <trainyard/ad/number.hpp>

namespace trainyard::ad {

/// Holds one function evaluation at a time; of one thread. `clear` keeps its memory, so that the next
/// evaluation allocates nothing. Outlives its Vars.
template <class T = double>
class Tape {
 public:
  Tape() = default;
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// Makes an input.
  Var<T> variable(const T& inner) { return Var<T>(inner, this, end_entry()); }

  /// Computes the slopes of y by everything on the tape. Those of a y that depends on nothing are 0.
  void backward(const Var<T>& y) {
    slopes_.assign(ends_.size(), T(0.0));
    if (y.tape_ == nullptr) return;
    slopes_[y.entry_] = T(1.0);
    for (std::size_t entry = y.entry_ + std::size_t{1}; entry-- > 0;) {
      const std::size_t begin = entry == 0 ? 0 : ends_[entry - 1];
      if (begin == ends_[entry]) continue;
      const T slope = slopes_[entry];
      for (std::size_t i = begin; i < ends_[entry]; ++i)
        slopes_[terms_[i].input] = slopes_[terms_[i].input] + terms_[i].partial * slope;
    }
  }
  /// Returns the slope of the last `backward` by x, which was made before it.
  T slope(const Var<T>& x) const { return x.tape_ == nullptr ? T(0.0) : slopes_[x.entry_]; }

  /// Empties the tape for the next evaluation. Its Vars are void.
  void clear() {
    ends_.clear();
    terms_.clear();
  }
  /// Returns how many operations and inputs are on it.
  std::size_t size() const { return ends_.size(); }

 private:
  friend class Var<T>;
  using Index = std::uint32_t;
  struct Term {
    T partial;
    Index input;
  };

  void add(const T& partial, const Var<T>& input) {
    if (input.tape_ != nullptr) terms_.push_back({partial, input.entry_});
  }
  Index end_entry() {
    constexpr auto most = std::numeric_limits<Index>::max();
    if (terms_.size() >= most || ends_.size() >= most)
      throw std::length_error("a tape holds 4294967295 operations at most; clear it between evaluations");
    ends_.push_back(static_cast<Index>(terms_.size()));
    return static_cast<Index>(ends_.size() - 1);
  }

  std::vector<Index> ends_;  // of the terms of each entry
  std::vector<Term> terms_;
  std::vector<T> slopes_;
};

/// A number on a tape, or a constant, which is on none.
template <class T>
class Var {
  static_assert(
      std::is_floating_point_v<T> || Active<T>,
      "a derivative is of real numbers: take Var<double>, Var<float> or, for one of a derivative, a Dual or "
      "Var in place of them");

 public:
  using Inner = T;

  Var() = default;
  template <ConstantOf<Var> S>
  Var(const S& constant) : inner_(constant) {}  // NOLINT: as numbers convert

  const T& inner() const { return inner_; }

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
  Var operator%(const S&) const {
    static_assert(detail::no_type<S>, "% does not propagate the derivative: it is of integers");
    return {};
  }

  // Operators make one number of others by these (number.hpp).
  static Var sum(const Var& a, const Var& b) { return joined(a.inner_ + b.inner_, T(1.0), a, T(1.0), b); }
  static Var difference(const Var& a, const Var& b) {
    return joined(a.inner_ - b.inner_, T(1.0), a, T(-1.0), b);
  }
  /// Makes a number without an operation: its slope is that of a.
  static Var moved(const T& y, const Var& a) { return Var(y, a.tape_, a.entry_); }
  static Var scaled(const T& y, const T& by, const Var& a) {
    if (a.tape_ == nullptr) return Var(y);
    a.tape_->add(by, a);
    return Var(y, a.tape_, a.tape_->end_entry());
  }
  static Var joined(const T& y, const T& by_a, const Var& a, const T& by_b, const Var& b) {
    Tape<T>* const tape = a.tape_ != nullptr ? a.tape_ : b.tape_;
    if (tape == nullptr) return Var(y);
    tape->add(by_a, a);
    tape->add(by_b, b);
    return Var(y, tape, tape->end_entry());
  }
  static Var joined(const T& y, std::span<const T> partials, std::span<const Var> inputs) {
    Tape<T>* tape = nullptr;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      if (inputs[k].tape_ == nullptr) continue;
      tape = inputs[k].tape_;
      tape->add(partials[k], inputs[k]);
    }
    return tape == nullptr ? Var(y) : Var(y, tape, tape->end_entry());
  }
  template <class B>
  static Var dot(std::span<const Var> a, std::span<const B> b) {
    Tape<T>* tape = nullptr;
    const auto add = [&](const T& partial, const Var& input) {
      if (input.tape_ == nullptr) return;
      tape = input.tape_;
      tape->add(partial, input);
    };
    T y(0.0);
    for (std::size_t k = 0; k < a.size(); ++k) {
      if constexpr (std::same_as<B, Var>) {
        add(b[k].inner_, a[k]);
        add(a[k].inner_, b[k]);
        y = y + a[k].inner_ * b[k].inner_;
      } else {
        add(T(b[k]), a[k]);
        y = y + a[k].inner_ * b[k];
      }
    }
    return tape == nullptr ? Var(y) : Var(y, tape, tape->end_entry());
  }

 private:
  friend class Tape<T>;
  Var(const T& inner, Tape<T>* tape, typename Tape<T>::Index entry)
      : inner_(inner), tape_(tape), entry_(entry) {}

  T inner_{};
  Tape<T>* tape_ = nullptr;
  std::uint32_t entry_ = 0;
};

}  // namespace trainyard::ad
