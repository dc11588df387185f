// JSON text in a fixed buffer. The handler of a fatal signal writes with it, as it must neither allocate nor
// lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace trainyard::report {

/// Text that does not fit is left out; callers that write lists ask `room` first, so that it stays whole.
class SignalText {
 public:
  void clear() { size_ = 0; }
  const char* data() const { return text_.data(); }
  std::size_t size() const { return size_; }
  std::size_t room() const { return text_.size() - size_; }
  std::string_view view() const { return {text_.data(), size_}; }

  SignalText& raw(std::string_view text) {
    const std::size_t count = text.size() < room() ? text.size() : room();
    std::memcpy(text_.data() + size_, text.data(), count);
    size_ += count;
    return *this;
  }
  SignalText& number(std::int64_t value) {
    if (value < 0) raw("-");
    std::uint64_t rest =
        value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
    return digits(rest, 10);
  }
  SignalText& hex(std::uint64_t value) { return raw("0x").digits(value, 16); }

  /// Adds at most `limit` bytes of a string in quotes; null for a null pointer. Bytes that are not UTF-8
  /// become U+FFFD.
  SignalText& quoted(const char* text, std::size_t limit = 8192) {
    return text == nullptr ? raw("null") : quoted(std::string_view(text), limit);
  }
  SignalText& quoted(std::string_view text, std::size_t limit = 8192) {
    raw("\"");
    for (std::size_t i = 0; i < text.size() && i < limit;) {
      const auto byte = static_cast<unsigned char>(text[i]);
      const std::size_t length = length_of(text.substr(i));
      if (length == 0) {
        raw("\\ufffd");
        ++i;
        continue;
      }
      if (byte == '"' || byte == '\\') {
        raw("\\").raw(text.substr(i, 1));
      } else if (byte < 0x20) {
        raw("\\u00");
        raw(std::string_view("0123456789abcdef").substr(byte >> 4, 1));
        raw(std::string_view("0123456789abcdef").substr(byte & 15, 1));
      } else {
        raw(text.substr(i, length));
      }
      i += length;
    }
    return raw("\"");
  }

 private:
  SignalText& digits(std::uint64_t value, unsigned base) {
    std::array<char, 24> text;
    std::size_t first = text.size();
    do {
      text[--first] = "0123456789abcdef"[value % base];
      value /= base;
    } while (value != 0);
    return raw({text.data() + first, text.size() - first});
  }

  /// Returns the bytes of the UTF-8 character at the beginning of the text; 0 if there is none.
  static std::size_t length_of(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned first = byte(0);
    const std::size_t length = first < 0x80   ? 1
                               : first < 0xc2 ? 0
                               : first < 0xe0 ? 2
                               : first < 0xf0 ? 3
                               : first < 0xf5 ? 4
                                              : 0;
    if (length > text.size()) return 0;
    for (std::size_t i = 1; i < length; ++i)
      if ((byte(i) & 0xc0) != 0x80) return 0;
    if (length < 3) return length;
    // These are overlong forms, surrogates, and values beyond U+10FFFF.
    const unsigned second = byte(1);
    const bool wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                       (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
    return wrong ? 0 : length;
  }

  std::array<char, std::size_t{128} * 1024> text_;
  std::size_t size_ = 0;
};

}  // namespace trainyard::report
