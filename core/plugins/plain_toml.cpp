#include "core/plugins/plain_toml.hpp"

#include <algorithm>
#include <charconv>

#include <trainyard/error.hpp>

#include "lib/printed.hpp"

namespace trainyard::plugins {
namespace {

constexpr int max_depth = 16;
constexpr std::size_t max_keys = 64;  // in one table, as its lookups are linear

bool is_key_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

class Writer {
 public:
  std::string document(const Table& table) {
    for (const Table::Entry& entry : table.entries()) {
      text_ += entry.key + " = ";
      const Array* array = entry.value.get_if<Array>();
      if (array != nullptr && !array->empty() && array->front().get_if<Table>() != nullptr) {
        text_ += "[\n";
        for (const Value& element : *array) {
          text_ += "  ";
          value(element);
          text_ += ",\n";
        }
        text_ += "]";
      } else {
        value(entry.value);
      }
      text_ += "\n";
    }
    return std::move(text_);
  }

 private:
  void value(const Value& value) {
    std::visit([this](const auto& held) { write(held); }, value.data());
  }
  void write(bool held) { text_ += held ? "true" : "false"; }
  void write(std::int64_t held) { text_ += std::to_string(held); }
  void write(double held) { text_ += lib::float_text(held); }
  void write(const std::string& held) {
    text_ += '"';
    for (const char c : held) {
      if (c == '\n')
        text_ += "\\n";
      else if (c == '\t')
        text_ += "\\t";
      else if (is_control(c))
        throw PluginError("the text \"" + held +
                          "\" holds a control character; only line breaks and tabs may stand in it");
      else if (c == '"' || c == '\\')
        (text_ += '\\') += c;
      else
        text_ += c;
    }
    text_ += '"';
  }
  void write(const Array& held) {
    text_ += '[';
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (i > 0) text_ += ", ";
      value(held[i]);
    }
    text_ += ']';
  }
  void write(const Table& held) {
    text_ += '{';
    for (std::size_t i = 0; i < held.entries().size(); ++i) {
      const Table::Entry& entry = held.entries()[i];
      text_ += (i > 0 ? ", " : "") + entry.key + " = ";
      value(entry.value);
    }
    text_ += '}';
  }

  std::string text_;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Table document() {
    Table table;
    for (skip_lines(); at_ < text_.size(); skip_lines()) {
      entry(table, 0);
      skip_blanks();
      if (at_ < text_.size() && peek() != '\n') fail("the end of the line");
    }
    return table;
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    std::string found = at_ < text_.size() ? std::string(text_.substr(at_, 12)) : "the end of the text";
    std::replace_if(found.begin(), found.end(), is_control, '?');
    throw PluginError("line " + std::to_string(line) + ": found `" + found + "`, expected " + expected);
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void skip_blanks() {
    while (peek() == ' ') ++at_;
  }
  void skip_lines() {
    while (peek() == ' ' || peek() == '\n') ++at_;
  }

  void entry(Table& table, int depth) {
    const std::size_t start = at_;
    while (is_key_character(peek())) ++at_;
    std::string key(text_.substr(start, at_ - start));
    if (key.empty()) fail("a key");
    if (table.entries().size() == max_keys) fail("at most " + std::to_string(max_keys) + " keys in a table");
    if (table.contains(key)) fail("no second `" + key + "`");
    skip_blanks();
    if (!take('=')) fail("`=`");
    skip_blanks();
    table.set(std::move(key), value(depth + 1));
  }

  Value value(int depth) {
    if (depth > max_depth) fail("at most " + std::to_string(max_depth) + " levels");
    if (take('"')) return string();
    if (take('[')) return array(depth);
    if (take('{')) return table(depth);
    return word();
  }

  std::string string() {
    std::string result;
    while (true) {
      const std::size_t start = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' && !is_control(text_[at_])) ++at_;
      result += text_.substr(start, at_ - start);
      if (take('"')) return result;
      if (!take('\\')) fail("`\"`");
      if (take('n'))
        result += '\n';
      else if (take('t'))
        result += '\t';
      else if (peek() == '"' || peek() == '\\')
        result += text_[at_++];
      else
        fail("one of \\n \\t \\\" \\\\");
    }
  }

  Array array(int depth) {
    Array result;
    for (skip_lines(); !take(']'); skip_lines()) {
      result.push_back(value(depth + 1));
      skip_lines();
      if (!take(',') && peek() != ']') fail("`,` or `]`");
    }
    return result;
  }

  Table table(int depth) {
    Table result;
    skip_blanks();
    if (take('}')) return result;
    do {
      skip_blanks();
      entry(result, depth);
      skip_blanks();
    } while (take(','));
    if (!take('}')) fail("`,` or `}`");
    return result;
  }

  Value word() {
    const std::size_t start = at_;
    while (is_key_character(peek()) || peek() == '.' || peek() == '+') ++at_;
    const std::string_view word = text_.substr(start, at_ - start);
    if (word == "true") return true;
    if (word == "false") return false;
    const char* end = word.data() + word.size();
    std::int64_t integer = 0;
    if (const auto parsed = std::from_chars(word.data(), end, integer);
        parsed.ec == std::errc{} && parsed.ptr == end)
      return integer;
    double number = 0.0;
    if (const auto parsed = std::from_chars(word.data(), end, number);
        parsed.ec == std::errc{} && parsed.ptr == end)
      return number;
    at_ = start;
    fail("a value");
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::string to_plain_toml(const Table& table) {
  return Writer().document(table);
}

Table parse_plain_toml(std::string_view text) {
  return Parser(text).document();
}

}  // namespace trainyard::plugins
