// Protobuf's wire format, read where it lies: https://protobuf.dev/programming-guides/encoding/. A message is a
// row of fields, each with a number and a wire type; a message within it is a field of bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <trainyard/error.hpp>

namespace onnx {

using namespace trainyard;

/// The fields of one message, one after another:
///   for (Fields fields(message, file); fields.next();)
///     if (fields.number() == 3) name = fields.bytes();
/// All of them throw DataError, with the place in the file, where bytes end within a field or are no field, and
/// where a field has another type than it is asked for.
class Fields {
 public:
  /// `message` lies in `file`, which must outlive what is read.
  Fields(std::string_view message, std::string_view file) : rest_(message), file_(file) {}

  /// Goes to the next field; false: there is none.
  bool next() {
    if (rest_.empty()) return false;
    start_ = rest_;
    const std::uint64_t key = varint();
    number_ = key >> 3;
    type_ = static_cast<unsigned>(key & 7);
    if (number_ == 0 || number_ >= (1u << 29)) fail("a field has no valid number");
    switch (type_) {
      case 0: value_ = varint(); break;
      case 1: value_ = fixed<std::uint64_t>(); break;
      case 2: bytes_ = take(varint()); break;
      case 5: value_ = fixed<std::uint32_t>(); break;
      default:
        fail("field " + std::to_string(number_) + " has wire type " + std::to_string(type_) +
             ", one of 0, 1, 2, 5");
    }
    return true;
  }

  std::uint64_t number() const { return number_; }

  std::int64_t integer() const {
    expect(0);
    return static_cast<std::int64_t>(value_);
  }
  float single() const {
    expect(5);
    return std::bit_cast<float>(static_cast<std::uint32_t>(value_));
  }
  std::string_view bytes() const {
    expect(2);
    return bytes_;
  }
  std::string text() const { return std::string(bytes()); }

  /// Appends numbers of a repeated field, packed or one by one.
  void append(std::vector<std::int64_t>& to) const {
    append_each(to, 0, [](Fields& f) { return static_cast<std::int64_t>(f.varint()); });
  }
  void append(std::vector<float>& to) const {
    append_each(to, 5, [](Fields& f) { return std::bit_cast<float>(f.fixed<std::uint32_t>()); });
  }
  void append(std::vector<double>& to) const {
    append_each(to, 1, [](Fields& f) { return std::bit_cast<double>(f.fixed<std::uint64_t>()); });
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw DataError("byte " + std::to_string(start_.data() - file_.data()) + ": " + what);
  }

 private:
  void expect(unsigned type) const {
    if (type_ != type)
      fail("field " + std::to_string(number_) + " has wire type " + std::to_string(type_) + ", expected " +
           std::to_string(type));
  }

  std::uint64_t varint() {
    std::uint64_t result = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1).front());
      result |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return result;
    }
    fail("a number has more than ten bytes");
  }

  template <class T>
  T fixed() {
    T result;
    std::memcpy(&result, take(sizeof(T)).data(), sizeof(T));
    return result;
  }

  std::string_view take(std::uint64_t size) {
    if (size > rest_.size())
      fail("the message ends " + std::to_string(size - rest_.size()) + " bytes too early");
    const std::string_view result = rest_.substr(0, static_cast<std::size_t>(size));
    rest_.remove_prefix(static_cast<std::size_t>(size));
    return result;
  }

  template <class T, class Read>
  void append_each(std::vector<T>& to, unsigned type, Read read) const {
    if (type_ == type) {
      if constexpr (sizeof(T) == sizeof(float))
        to.push_back(std::bit_cast<T>(static_cast<std::uint32_t>(value_)));
      else
        to.push_back(std::bit_cast<T>(value_));
      return;
    }
    for (Fields packed(bytes(), file_); !packed.rest_.empty();) {
      packed.start_ = packed.rest_;
      to.push_back(read(packed));
    }
  }

  std::string_view rest_, file_, start_ = rest_, bytes_;
  std::uint64_t number_ = 0, value_ = 0;
  unsigned type_ = 0;
};

}  // namespace onnx
