// The largest elements of a gradient as they go over the wire: exactly k indices of 32 bits, then their k
// values, of 32 or 16.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>

#include <trainyard/manifest.hpp>

#include "kernels/cpu/top_k.hpp"

namespace compressors {

enum class ValueType { fp32, fp16, bf16 };

inline std::int64_t bytes_of(ValueType type) {
  return type == ValueType::fp32 ? 4 : 2;
}

inline std::span<float> floats(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

namespace detail {

/// Writes values in a type of fewer bits; each becomes what is left of it. A finite one that is too large for
/// the type becomes the type's largest: an infinity would end the training, and what is missing comes later.
template <class T>
void narrow(std::span<float> values, unsigned char* to) {
  const float most = static_cast<float>(std::numeric_limits<T>::max());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = values[i];
    const T sent(std::isfinite(value) ? std::min(std::max(value, -most), most) : value);
    std::memcpy(to + i * sizeof sent, &sent, sizeof sent);
    values[i] = value - static_cast<float>(sent);
  }
}

template <class T>
void widen(const unsigned char* from, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    T sent;
    std::memcpy(static_cast<void*>(&sent), from + i * sizeof sent, sizeof sent);
    values[i] = static_cast<float>(sent);
  }
}

}  // namespace detail

/// Selects what is sent, and adds up what has come. Not to be used by two threads at a time.
class Pairs {
 public:
  /// How selections were: of all of them so far.
  struct Statistics {
    std::int64_t selected = 0, sure = 0, candidates = 0, passes = 0, selections = 0, non_finite = 0;
  };

  Pairs(const trainyard::kernels::Selection& how, ValueType type) : how_(how), type_(type) {}

  /// Takes the k largest out of a float tensor: gives what is to be sent; what stays in the tensor was not,
  /// which of those k is nothing, but for what a narrow type could not hold. What is not finite is sent, k of
  /// it at most, and does not stay.
  at::Tensor take(const at::Tensor& from, std::int64_t k, std::uint64_t random) {
    indices_.resize(static_cast<std::size_t>(k));
    values_.resize(static_cast<std::size_t>(k));
    const std::span<float> all = floats(from);
    const trainyard::kernels::Selected found = selector_.select(all, how_, random, indices_, values_);
    count(found, k);
    const at::Tensor sent = at::empty({k * (4 + bytes_of(type_))}, at::TensorOptions(at::kByte));
    auto* bytes = sent.mutable_data_ptr<unsigned char>();
    std::memcpy(bytes, indices_.data(), indices_.size() * sizeof(std::int32_t));
    write(bytes + indices_.size() * sizeof(std::int32_t));
    for (std::size_t j = 0; j < indices_.size(); ++j) all[static_cast<std::size_t>(indices_[j])] = values_[j];
    if (found.non_finite > 0)
      for (float& each : all)
        if (!std::isfinite(each)) each = 0.0F;
    return sent;
  }

  /// Of the last that were taken, ascending.
  std::span<const std::int32_t> indices() const { return indices_; }

  /// Adds what several ranks sent, one after the other.
  void add(const at::Tensor& all, std::int64_t k, const at::Tensor& into) {
    const std::int64_t each = k * (4 + bytes_of(type_));
    indices_.resize(static_cast<std::size_t>(k));
    values_.resize(static_cast<std::size_t>(k));
    for (std::int64_t at = 0; at < all.numel(); at += each) {
      const unsigned char* bytes = all.const_data_ptr<unsigned char>() + at;
      std::memcpy(indices_.data(), bytes, indices_.size() * sizeof(std::int32_t));
      read(bytes + indices_.size() * sizeof(std::int32_t));
      trainyard::kernels::scatter_add(values_, indices_, floats(into));
    }
  }

  Statistics take_statistics() { return std::exchange(statistics_, {}); }

 private:
  void write(unsigned char* to) {
    if (type_ == ValueType::fp16) return detail::narrow<c10::Half>(values_, to);
    if (type_ == ValueType::bf16) return detail::narrow<c10::BFloat16>(values_, to);
    std::memcpy(to, values_.data(), values_.size() * sizeof(float));
    std::fill(values_.begin(), values_.end(), 0.0F);
  }
  void read(const unsigned char* from) {
    if (type_ == ValueType::fp16) return detail::widen<c10::Half>(from, values_);
    if (type_ == ValueType::bf16) return detail::widen<c10::BFloat16>(from, values_);
    std::memcpy(values_.data(), from, values_.size() * sizeof(float));
  }
  void count(const trainyard::kernels::Selected& found, std::int64_t k) {
    statistics_.selected += k;
    statistics_.sure += found.k1;
    statistics_.candidates += found.k2;
    statistics_.passes += found.passes;
    statistics_.non_finite += found.non_finite;
    ++statistics_.selections;
  }

  const trainyard::kernels::Selection how_;
  const ValueType type_;
  trainyard::kernels::TopK selector_;
  std::vector<std::int32_t> indices_;
  std::vector<float> values_;
  Statistics statistics_;
};

/// Of so many elements: at least one.
inline std::int64_t share_of(std::int64_t elements, double density) {
  const auto k = static_cast<std::int64_t>(std::floor(density * static_cast<double>(elements)));
  return std::min(std::max<std::int64_t>(k, 1), elements);
}

}  // namespace compressors

template <>
struct trainyard::Words<compressors::ValueType> {
  static constexpr std::string_view words[] = {"fp32", "fp16", "bf16"};
};
template <>
struct trainyard::Words<trainyard::kernels::Method> {
  static constexpr std::string_view words[] = {"mstopk", "bitsearch", "radix", "exact"};
};
template <>
struct trainyard::Words<trainyard::kernels::Start> {
  static constexpr std::string_view words[] = {"mean", "minimum"};
};
