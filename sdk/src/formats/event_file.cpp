#include <trainyard/formats/event_file.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include <c10/core/ScalarType.h>

#include <trainyard/error.hpp>
#include <trainyard/statistics.hpp>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include <ATen/ops/empty.h>

namespace trainyard::event_file {
namespace {

static_assert(std::endian::native == std::endian::little, "records are written as they lie in memory");

constexpr std::uint32_t polynomial = 0x82f63b78u;

/// Takes the bytes into a CRC's register.
std::uint32_t portable_advance(std::uint32_t crc, std::string_view bytes) {
  static constexpr auto table = [] {
    std::array<std::uint32_t, 256> result{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? polynomial : 0u);
      result[i] = value;
    }
    return result;
  }();
  for (const char byte : bytes) crc = table[(crc ^ static_cast<std::uint8_t>(byte)) & 0xff] ^ (crc >> 8);
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t fast_advance(std::uint32_t crc, std::string_view bytes) {
  std::uint64_t wide = crc;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<std::uint32_t>(wide);
  for (const char byte : bytes) crc = _mm_crc32_u8(crc, static_cast<std::uint8_t>(byte));
  return crc;
}
#endif

std::uint32_t advance(std::uint32_t crc, std::string_view bytes) {
#if defined(__x86_64__)
  static const bool fast = __builtin_cpu_supports("sse4.2");
  if (fast) return fast_advance(crc, bytes);
#endif
  return portable_advance(crc, bytes);
}

template <class T>
std::string bytes_of(T value) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(value);
  return std::string(bytes.data(), bytes.size());
}
template <class T>
T value_of(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// Protobuf: every field is a key (number, wire type) and its value.
constexpr int wire_varint = 0, wire_64 = 1, wire_bytes = 2, wire_32 = 5;

std::string varint(std::uint64_t value) {
  std::string result;
  for (; value >= 0x80; value >>= 7) result += static_cast<char>(value | 0x80);
  return result + static_cast<char>(value);
}
std::string key(int number, int wire) {
  return varint(static_cast<std::uint64_t>(number) << 3 | static_cast<unsigned>(wire));
}
std::string field_integer(int number, std::int64_t value) {
  return key(number, wire_varint) + varint(static_cast<std::uint64_t>(value));
}
std::string field_double(int number, double value) {
  return key(number, wire_64) + bytes_of(value);
}
std::string field_float(int number, float value) {
  return key(number, wire_32) + bytes_of(value);
}
std::string field_bytes(int number, std::string_view value) {
  return key(number, wire_bytes) + varint(value.size()) + std::string(value);
}
std::string field_doubles(int number, const std::vector<double>& values) {
  return field_bytes(number, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)});
}

std::string event(double wall_time, std::int64_t step, std::string_view summary) {
  return field_double(1, wall_time) + field_integer(2, step) + field_bytes(5, summary);
}

/// Takes a varint from the front of `bytes`.
std::optional<std::uint64_t> take_varint(std::string_view& bytes) {
  std::uint64_t result = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<std::uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    result |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return result;
  }
  return std::nullopt;
}

/// A field at the front of a message.
struct Field {
  int number = 0;
  std::uint64_t integer = 0;
  std::string_view bytes;
};
std::optional<Field> take_field(std::string_view& message) {
  const auto head = take_varint(message);
  if (!head) return std::nullopt;
  Field field{.number = static_cast<int>(*head >> 3)};
  std::size_t length = 0;
  switch (static_cast<int>(*head & 7)) {
    case wire_varint: {
      const auto value = take_varint(message);
      if (!value) return std::nullopt;
      field.integer = *value;
      return field;
    }
    case wire_64: length = 8; break;
    case wire_32: length = 4; break;
    case wire_bytes: {
      const auto value = take_varint(message);
      if (!value || *value > message.size()) return std::nullopt;
      length = *value;
      break;
    }
    default: return std::nullopt;
  }
  if (length > message.size()) return std::nullopt;
  field.bytes = message.substr(0, length);
  message.remove_prefix(length);
  return field;
}
/// Returns the first field of bytes with this number.
std::optional<std::string_view> find_bytes(std::string_view message, int number) {
  while (const auto field = take_field(message))
    if (field->number == number) return field->bytes;
  return std::nullopt;
}

/// TensorFlow's numbers of types.
struct Type {
  at::ScalarType scalar;
  int number;
};
constexpr Type types[] = {{at::kFloat, 1}, {at::kDouble, 2}, {at::kInt, 3},   {at::kByte, 4}, {at::kShort, 5},
                          {at::kChar, 6},  {at::kLong, 9},   {at::kBool, 10}, {at::kHalf, 19}};

/// Debugger's reader expects the CRC of these bytes for every record, whatever is in it.
constexpr std::string_view checksum_of_all = "0x12345678";

/// Returns the four bytes that take a CRC's register to that of `checksum_of_all`. Four bytes move it by a
/// bijection: it is run backwards from the end, 32 zero bits, and the difference to it is the bytes.
std::string correction(std::uint32_t crc) {
  std::uint32_t wanted = advance(~0u, checksum_of_all);
  for (int bit = 0; bit < 32; ++bit)
    wanted = (wanted & 0x80000000u) ? ((wanted ^ polynomial) << 1) | 1u : wanted << 1;
  return bytes_of(wanted ^ crc);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  return ~advance(~0u, bytes);
}

std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

std::string framed(std::string_view record) {
  std::string result = bytes_of(static_cast<std::uint64_t>(record.size()));
  result += bytes_of(masked_crc(result));
  result += record;
  return result + bytes_of(masked_crc(record));
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string version_record(double wall_time) {
  return framed(field_double(1, wall_time) + field_bytes(3, "brain.Event:2"));
}

std::string scalars_record(double wall_time, std::int64_t step,
                           const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, value] : values)
    summary += field_bytes(1, field_bytes(1, tag) + field_float(2, static_cast<float>(value)));
  return framed(event(wall_time, step, summary));
}

Histogram histogram(const at::Tensor& values) {
  static const std::vector<double> edges = [] {
    std::vector<double> positive, all;
    for (double edge = 1e-12; edge < 1e20; edge *= 1.1) positive.push_back(edge);
    for (auto edge = positive.rbegin(); edge != positive.rend(); ++edge) all.push_back(-*edge);
    all.push_back(0.0);
    all.insert(all.end(), positive.begin(), positive.end());
    all.push_back(std::numeric_limits<double>::max());
    return all;
  }();
  const at::Tensor contiguous = values.to(at::kDouble).contiguous();
  const double* x = contiguous.const_data_ptr<double>();
  std::vector<double> counts(edges.size(), 0.0);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Histogram result{.minimum = infinity, .maximum = -infinity};
  for (std::int64_t i = 0; i < contiguous.numel(); ++i) {
    if (!std::isfinite(x[i])) continue;
    const auto edge = std::lower_bound(edges.begin(), edges.end(), x[i]);
    ++counts[static_cast<std::size_t>(edge - edges.begin())];
    ++result.count;
    result.sum += x[i];
    result.squares += x[i] * x[i];
    result.minimum = std::min(result.minimum, x[i]);
    result.maximum = std::max(result.maximum, x[i]);
  }
  if (result.count == 0.0) throw PluginError("a histogram needs finite values, and there are none");
  const auto filled = [](double count) { return count > 0.0; };
  const auto first = std::find_if(counts.begin(), counts.end(), filled) - counts.begin();
  const auto last = counts.rend() - std::find_if(counts.rbegin(), counts.rend(), filled);
  const auto begin = std::max<std::ptrdiff_t>(0, first - 1);  // an empty bucket gives the first its left edge
  result.limits.assign(edges.begin() + begin, edges.begin() + last);
  result.counts.assign(counts.begin() + begin, counts.begin() + last);
  return result;
}

std::string histograms_record(double wall_time, std::int64_t step,
                              const std::vector<std::pair<std::string, Histogram>>& values) {
  std::string summary;
  for (const auto& [tag, h] : values)
    summary += field_bytes(
        1, field_bytes(1, tag) + field_bytes(5, field_double(1, h.minimum) + field_double(2, h.maximum) +
                                                    field_double(3, h.count) + field_double(4, h.sum) +
                                                    field_double(5, h.squares) + field_doubles(6, h.limits) +
                                                    field_doubles(7, h.counts)));
  return framed(event(wall_time, step, summary));
}

std::string tensor_record(double wall_time, std::int64_t step, const std::string& name,
                          const at::Tensor& given, int mode, std::int64_t mode_step) {
  const bool brain = given.scalar_type() == at::kBFloat16;
  const at::Tensor value = (brain ? given.to(at::kFloat) : given).contiguous();
  const auto type = std::find_if(std::begin(types), std::end(types),
                                 [&](const Type& each) { return each.scalar == value.scalar_type(); });
  if (type == std::end(types))
    throw PluginError("\"" + name + "\" cannot be saved: there is no type for " +
                      c10::toString(value.scalar_type()));
  std::string shape;
  for (const std::int64_t length : value.sizes()) shape += field_bytes(2, field_integer(1, length));
  const std::string tensor =
      field_integer(1, type->number) + field_bytes(2, shape) +
      field_bytes(4, {static_cast<const char*>(value.const_data_ptr()), value.nbytes()});
  const auto plugin = [](std::string_view name, std::int64_t number) {
    return field_bytes(1, field_bytes(1, name) + field_bytes(2, std::to_string(number)));
  };
  std::string record =
      event(wall_time, step,
            field_bytes(1, field_bytes(1, name) + field_bytes(8, tensor) +
                               field_bytes(9, plugin("mode_step", mode_step) + plugin("mode", mode))));
  record += key(15, wire_32);
  record += correction(advance(~0u, record));
  return framed(record);
}

at::Tensor tensor_of(std::string_view framed_record) {
  const auto record = front(framed_record);
  if (!record) throw DataError("the record of a tensor is cut short, or its checksum is wrong");
  const auto summary = find_bytes(*record, 5);
  const auto value = summary ? find_bytes(*summary, 1) : std::nullopt;
  auto tensor = value ? find_bytes(*value, 8) : std::nullopt;
  if (!tensor) throw DataError("the record holds no tensor");
  std::int64_t type = 0;
  std::vector<std::int64_t> shape;
  std::string_view content;
  while (const auto field = take_field(*tensor)) {
    if (field->number == 1) type = static_cast<std::int64_t>(field->integer);
    if (field->number == 4) content = field->bytes;
    if (field->number != 2) continue;
    std::string_view dimensions = field->bytes;
    while (auto dimension = take_field(dimensions)) {
      std::int64_t length = 0;
      while (const auto part = take_field(dimension->bytes))
        if (part->number == 1) length = static_cast<std::int64_t>(part->integer);
      shape.push_back(length);
    }
  }
  const auto known =
      std::find_if(std::begin(types), std::end(types), [&](const Type& each) { return each.number == type; });
  if (known == std::end(types))
    throw DataError("the record holds a tensor of type " + std::to_string(type) + ", which is not known");
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t length) { return length < 0; }))
    throw DataError("the record holds a tensor of negative size");
  at::Tensor result = at::empty(shape, known->scalar);
  if (result.nbytes() != content.size())
    throw DataError("the record holds " + std::to_string(content.size()) + " bytes for a tensor of " +
                    std::to_string(result.nbytes()));
  if (!content.empty()) std::memcpy(result.mutable_data_ptr(), content.data(), content.size());
  return result;
}

std::int64_t step_of(std::string_view event) {
  constexpr std::size_t wall_time = 1 + sizeof(double);
  constexpr char step_key = 2 << 3;
  if (event.size() <= wall_time || event[wall_time] != step_key) return 0;
  event.remove_prefix(wall_time + 1);
  return static_cast<std::int64_t>(take_varint(event).value_or(0));
}

std::vector<std::string> tags_of(std::string_view event) {
  std::vector<std::string> tags;
  std::string_view summary = find_bytes(event, 5).value_or(std::string_view());
  while (const auto value = take_field(summary))
    if (const auto tag = find_bytes(value->bytes, 1)) tags.emplace_back(*tag);
  return tags;
}

std::optional<std::string_view> front(std::string_view file) {
  constexpr std::size_t head = 12;
  if (file.size() < frame_size) return std::nullopt;
  const auto length = value_of<std::uint64_t>(file);
  if (length > file.size() - frame_size ||
      value_of<std::uint32_t>(file.substr(8)) != masked_crc(file.substr(0, 8)))
    return std::nullopt;
  const std::string_view record = file.substr(head, length);
  if (value_of<std::uint32_t>(file.substr(head + length)) != masked_crc(record)) return std::nullopt;
  return record;
}

}  // namespace trainyard::event_file
