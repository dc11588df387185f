// A configuration value with the place it was written at. The host parses a run file into a tree of
// these; plugins never see one (their options arrive as a filled struct, see manifest.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("value.hpp");

namespace trainyard {

/// The place of a value in its file: 1-based line and column; line 0 means "no place" (a default).
struct Origin {
  std::shared_ptr<const std::string> file;
  int line = 0;
  int column = 0;
};

class Value;
using Array = std::vector<Value>;

/// A table of values. Keys are in the order they were written; lookups are linear, tables are small.
class Table {
 public:
  struct Entry;
  // Defined below, where an entry is complete.
  Table();
  ~Table();
  Table(const Table&);
  Table(Table&&) noexcept;
  Table& operator=(const Table&);
  Table& operator=(Table&&) noexcept;

  const Value* find(std::string_view key) const;
  Value* find(std::string_view key);
  Value& set(std::string key, Value value);  ///< inserts or replaces
  bool erase(std::string_view key);
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  std::vector<Entry>& entries() { return entries_; }
  const std::vector<Entry>& entries() const { return entries_; }
  bool empty() const;

 private:
  std::vector<Entry> entries_;
};

class Value {
 public:
  using Data = std::variant<bool, std::int64_t, double, std::string, Array, Table>;

  Value() : data_(Table{}) {}
  Value(bool v) : data_(v) {}
  Value(int v) : data_(std::int64_t{v}) {}
  Value(std::int64_t v) : data_(v) {}
  Value(double v) : data_(v) {}
  Value(const char* v) : data_(std::string(v)) {}
  Value(std::string v) : data_(std::move(v)) {}
  Value(Array v) : data_(std::move(v)) {}
  Value(Table v) : data_(std::move(v)) {}

  template <class T>
  const T* get_if() const {
    return std::get_if<T>(&data_);
  }
  template <class T>
  T* get_if() {
    return std::get_if<T>(&data_);
  }
  template <class T>
  const T& as() const {
    return std::get<T>(data_);
  }
  template <class T>
  T& as() {
    return std::get<T>(data_);
  }
  const Data& data() const { return data_; }

  /// Returns "boolean", "integer", "float", "string", "array" or "table", for messages.
  const char* type_name() const;

  Origin origin;      ///< of the value
  Origin key_origin;  ///< of its key, when it stands in a table

 private:
  Data data_;
};

struct Table::Entry {
  std::string key;
  Value value;
};

inline Table::Table() = default;
inline Table::~Table() = default;
inline Table::Table(const Table&) = default;
inline Table::Table(Table&&) noexcept = default;
inline Table& Table::operator=(const Table&) = default;
inline Table& Table::operator=(Table&&) noexcept = default;

inline bool Table::empty() const {
  return entries_.empty();
}
inline const Value* Table::find(std::string_view key) const {
  for (const Entry& entry : entries_)
    if (entry.key == key) return &entry.value;
  return nullptr;
}
inline Value* Table::find(std::string_view key) {
  return const_cast<Value*>(std::as_const(*this).find(key));
}
inline Value& Table::set(std::string key, Value value) {
  if (Value* present = find(key)) return *present = std::move(value);
  return entries_.emplace_back(Entry{std::move(key), std::move(value)}).value;
}
inline bool Table::erase(std::string_view key) {
  return std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; }) > 0;
}
inline const char* Value::type_name() const {
  constexpr const char* names[] = {"boolean", "integer", "float", "string", "array", "table"};
  return names[data_.index()];
}

}  // namespace trainyard
