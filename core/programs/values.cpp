#include "core/programs/values.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include <trainyard/error.hpp>

namespace trainyard::checkpoint {
namespace {

struct Distance {
  double absolute = 0.0, relative = 0.0;
};

Distance distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return {};
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (!std::isfinite(a) || !std::isfinite(b)) return {infinity, infinity};
  const double absolute = std::abs(a - b), larger = std::max(std::abs(a), std::abs(b));
  if (std::isfinite(absolute)) return {absolute, absolute / larger};
  return {absolute, std::abs(a / 2 - b / 2) / (larger / 2)};
}

/// Uses unsigned arithmetic, as the difference of two int64 may overflow one and a double may not hold them.
Distance distance(std::int64_t a, std::int64_t b) {
  const auto size = [](std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    return value < 0 ? 0 - bits : bits;
  };
  if (a == b) return {};
  const std::uint64_t apart =
      static_cast<std::uint64_t>(std::max(a, b)) - static_cast<std::uint64_t>(std::min(a, b));
  return {static_cast<double>(apart),
          static_cast<double>(apart) / static_cast<double>(std::max(size(a), size(b)))};
}

struct Half {
  std::uint16_t bits;
  explicit operator double() const {
    const int exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
    const double size = exponent == 0   ? std::ldexp(fraction, -24)
                        : exponent < 31 ? std::ldexp(0x400 + fraction, exponent - 25)
                        : fraction == 0 ? std::numeric_limits<double>::infinity()
                                        : std::numeric_limits<double>::quiet_NaN();
    return bits & 0x8000 ? -size : size;
  }
};

struct BFloat16 {
  std::uint16_t bits;
  explicit operator double() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

/// Returns the distance between elements in the byte form of the files.
template <class T>
Distance distance_of(const char* a, const char* b) {
  using Number = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
  T x, y;
  std::memcpy(&x, a, sizeof x);
  std::memcpy(&y, b, sizeof y);
  return distance(static_cast<Number>(x), static_cast<Number>(y));
}

struct Dtype {
  const char* name;
  std::size_t width;
  Distance (*distance)(const char* a, const char* b);
};

template <class T>
constexpr Dtype dtype(const char* name) {
  return {name, sizeof(T), distance_of<T>};
}

constexpr Dtype dtypes[] = {dtype<float>("F32"),        dtype<double>("F64"),
                            dtype<Half>("F16"),         dtype<BFloat16>("BF16"),
                            dtype<std::int64_t>("I64"), dtype<std::int32_t>("I32"),
                            dtype<std::int16_t>("I16"), dtype<std::int8_t>("I8"),
                            dtype<std::uint8_t>("U8"),  dtype<std::uint8_t>("BOOL")};

const Dtype* find_dtype(const std::string& name) {
  const auto* found = std::ranges::find(dtypes, name, &Dtype::name);
  return found == std::end(dtypes) ? nullptr : found;
}

std::uint64_t size_of(const TensorEntry& tensor) {
  return tensor.codec.empty() ? tensor.length : tensor.size;
}

/// Returns the number of elements. Throws DataError if the size does not match type and shape.
std::uint64_t elements_of(const CheckedFile& file, const TensorEntry& tensor, std::size_t width) {
  std::uint64_t elements = 1;
  bool sound = true;
  for (const std::int64_t size : tensor.shape)
    sound =
        sound && size >= 0 && !__builtin_mul_overflow(elements, static_cast<std::uint64_t>(size), &elements);
  const std::uint64_t bytes = size_of(tensor);
  if (!sound || bytes % width != 0 || bytes / width != elements)
    throw DataError(file.path() + ": tensor \"" + stored_name(tensor.owner, tensor.name) + "\" has " +
                    std::to_string(bytes) + " bytes, which its type and shape do not make");
  return elements;
}

std::vector<std::int64_t> index_of(std::uint64_t element, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    const auto size = static_cast<std::uint64_t>(shape[i]);
    index[i] = static_cast<std::int64_t>(element % size);
    element /= size;
  }
  return index;
}

/// Reads a tensor that was checked in blocks; one that a codec stored is decoded as a whole.
class Blocks {
 public:
  Blocks(const CheckedFile& file, const TensorEntry& tensor)
      : file_(file), tensor_(tensor), whole_(tensor.codec.empty() ? "" : file.bytes_of(tensor)) {}

  std::string block(std::uint64_t begin, std::uint64_t length) const {
    if (!tensor_.codec.empty()) return whole_.substr(begin, length);
    std::string block;
    file_.read(tensor_.offset + begin, length, [&](std::string_view bytes) { block += bytes; });
    return block;
  }

 private:
  const CheckedFile& file_;
  const TensorEntry& tensor_;
  std::string whole_;
};

}  // namespace

const char* why_not_comparable(const TensorEntry& a, const TensorEntry& b) {
  if (a.shape != b.shape) return "their shapes differ";
  if (a.dtype != b.dtype) return "their types differ";
  return find_dtype(a.dtype) == nullptr ? "their type is not known here" : nullptr;
}

ValueDifference compare_values(const CheckedFile& file_of_a, const TensorEntry& a,
                               const CheckedFile& file_of_b, const TensorEntry& b) {
  const Dtype& dtype = *find_dtype(a.dtype);
  ValueDifference result;
  result.elements = elements_of(file_of_a, a, dtype.width);
  elements_of(file_of_b, b, dtype.width);
  file_of_a.check(a);
  file_of_b.check(b);
  constexpr std::uint64_t block = 1 << 20;
  const Blocks blocks_of_a(file_of_a, a), blocks_of_b(file_of_b, b);
  for (std::uint64_t begin = 0; begin < size_of(a); begin += block) {
    const std::uint64_t length = std::min(block, size_of(a) - begin);
    const std::string x = blocks_of_a.block(begin, length), y = blocks_of_b.block(begin, length);
    for (std::size_t i = 0; i < length; i += dtype.width) {
      if (std::memcmp(&x[i], &y[i], dtype.width) == 0) continue;
      if (result.differ++ == 0) result.first = index_of((begin + i) / dtype.width, a.shape);
      const Distance apart = dtype.distance(&x[i], &y[i]);
      result.largest_absolute = std::max(result.largest_absolute, apart.absolute);
      result.largest_relative = std::max(result.largest_relative, apart.relative);
    }
  }
  return result;
}

}  // namespace trainyard::checkpoint
