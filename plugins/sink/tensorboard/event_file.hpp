// TensorBoard's event files, the part that scalars need: records framed as TFRecords, each an Event protobuf.
//
//   record:  length (u64) | masked CRC32C of length (u32) | bytes | masked CRC32C of bytes (u32);
//   little-endian Event:   1 wall_time (double) | 2 step (int64) | 3 file_version (string) | 5 summary
//   (Summary) Summary: 1 value (repeated Value);  Value: 1 tag (string) | 2 simple_value (float)
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainyard::sink::event_file {

static_assert(std::endian::native == std::endian::little, "records are written as they lie in memory");

/// Castagnoli's polynomial, reflected.
inline std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto table = [] {
    std::array<std::uint32_t, 256> result{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? 0x82f63b78u : 0u);
      result[i] = value;
    }
    return result;
  }();
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) crc = table[(crc ^ static_cast<std::uint8_t>(byte)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

/// TFRecord's CRC: one that may stand inside checked bytes itself.
inline std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

template <class T>
std::string bytes_of(T value) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(value);
  return std::string(bytes.data(), bytes.size());
}

inline std::string framed(std::string_view record) {
  const std::string length = bytes_of(static_cast<std::uint64_t>(record.size()));
  std::string result = length + bytes_of(masked_crc(length));
  result += record;
  return result + bytes_of(masked_crc(record));
}

// Protobuf: every field is a key (number, wire type) and its value.
inline std::string varint(std::uint64_t value) {
  std::string result;
  for (; value >= 0x80; value >>= 7) result += static_cast<char>(value | 0x80);
  return result + static_cast<char>(value);
}
inline std::string field_integer(int number, std::int64_t value) {
  return varint(static_cast<std::uint64_t>(number) << 3) + varint(static_cast<std::uint64_t>(value));
}
inline std::string field_double(int number, double value) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 1) + bytes_of(value);
}
inline std::string field_float(int number, float value) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 5) + bytes_of(value);
}
inline std::string field_bytes(int number, std::string_view value) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(value.size()) + std::string(value);
}

/// The record that every file begins with.
inline std::string version_record(double wall_time) {
  return framed(field_double(1, wall_time) + field_bytes(3, "brain.Event:2"));
}

inline std::string scalars_record(double wall_time, std::int64_t step,
                                  const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, value] : values)
    summary += field_bytes(1, field_bytes(1, tag) + field_float(2, static_cast<float>(value)));
  return framed(field_double(1, wall_time) + field_integer(2, step) + field_bytes(5, summary));
}

/// Takes a varint from the front of `bytes`.
inline std::optional<std::uint64_t> take_varint(std::string_view& bytes) {
  std::uint64_t result = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<std::uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    result |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return result;
  }
  return std::nullopt;
}

/// The step of an Event as this file writes them: wall_time and step come first; 0 where there is none.
inline std::int64_t step_of(std::string_view event) {
  constexpr std::size_t wall_time = 1 + sizeof(double);
  constexpr char step_key = 2 << 3;
  if (event.size() <= wall_time || event[wall_time] != step_key) return 0;
  event.remove_prefix(wall_time + 1);
  return static_cast<std::int64_t>(take_varint(event).value_or(0));
}

/// Takes a field of bytes with this number from the front of `bytes`; nothing where another thing is there.
inline std::optional<std::string_view> take_bytes(std::string_view& bytes, int number) {
  if (bytes.empty() || bytes.front() != static_cast<char>(number << 3 | 2)) return std::nullopt;
  bytes.remove_prefix(1);
  const auto length = take_varint(bytes);
  if (!length || *length > bytes.size()) return std::nullopt;
  const std::string_view taken = bytes.substr(0, *length);
  bytes.remove_prefix(*length);
  return taken;
}

/// The tags of an Event as this file writes them.
inline std::vector<std::string> tags_of(std::string_view event) {
  std::vector<std::string> tags;
  constexpr std::size_t wall_time = 1 + sizeof(double);
  if (event.size() <= wall_time) return tags;
  event.remove_prefix(wall_time + 1);
  if (!take_varint(event)) return tags;  // the step
  std::string_view summary = take_bytes(event, 5).value_or(std::string_view());
  while (auto value = take_bytes(summary, 1))
    if (const auto tag = take_bytes(*value, 1)) tags.emplace_back(*tag);
  return tags;
}

/// Length of the leading whole, undamaged records of steps up to `last_step`. `take` gets each event.
template <class Take>
std::size_t length_through(std::string_view file, std::int64_t last_step, Take&& take) {
  constexpr std::size_t head = 12, tail = 4;
  std::size_t kept = 0;
  while (file.size() - kept >= head + tail) {
    const std::string_view rest = file.substr(kept);
    std::array<char, 8> raw{};
    rest.copy(raw.data(), raw.size());
    const auto length = std::bit_cast<std::uint64_t>(raw);
    if (length > rest.size() - head - tail) break;
    const std::string_view record = rest.substr(head, length);
    if (framed(record) != rest.substr(0, head + length + tail) || step_of(record) > last_step) break;
    take(record);
    kept += head + length + tail;
  }
  return kept;
}
inline std::size_t length_through(std::string_view file, std::int64_t last_step) {
  return length_through(file, last_step, [](std::string_view) {});
}

}  // namespace trainyard::sink::event_file
