// The numbers that a fitted pool consists of, by name, on their way to a file or back.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <trainyard/error.hpp>

#include "matrix.hpp"

namespace screen {

/// A class lists its members once, in `void keep(Archive&)`; the archive reads or writes each of them.
class Archive {
 public:
  using Numbers = std::map<std::string, std::vector<double>>;

  /// Begins an empty archive that members are written to.
  Archive() : loading_(false) {}
  /// Begins an archive that members are read from. `source` names the file in messages.
  Archive(Numbers numbers, std::string source)
      : loading_(true), numbers_(std::move(numbers)), source_(std::move(source)) {}

  bool loading() const { return loading_; }
  const Numbers& numbers() const { return numbers_; }
  const std::string& source() const { return source_; }

  /// Sets the text that all names begin with from here on: that of a member of the pool.
  void enter(std::string prefix) { prefix_ = std::move(prefix); }

  template <class Number>
  void list(const char* name, std::vector<Number>& values) {
    if (!loading_) {
      numbers_[prefix_ + name].assign(values.begin(), values.end());
      return;
    }
    const std::vector<double>& found = find(name);
    values.clear();
    values.reserve(found.size());
    for (const double value : found) values.push_back(static_cast<Number>(value));
  }
  template <class Number>
  void number(const char* name, Number& value) {
    std::vector<Number> one = {value};
    list(name, one);
    if (one.size() != 1) fail(name, "is a list, and a single number was expected");
    value = one.front();
  }
  /// Returns all numbers whose names begin as entered, by the rest of their names.
  Numbers all() const {
    Numbers found;
    for (const auto& [name, values] : numbers_)
      if (name.starts_with(prefix_)) found[name.substr(prefix_.size())] = values;
    return found;
  }
  void matrix(const char* name, Matrix& value) {
    const std::string text = name;
    number((text + ".rows").c_str(), value.rows);
    number((text + ".columns").c_str(), value.columns);
    list(name, value.values);
    if (value.values.size() != value.rows * value.columns)
      fail(name, "does not have as many numbers as rows times columns");
  }

  [[noreturn]] void fail(const char* name, const std::string& what) const {
    throw trainyard::DataError(source_ + ": \"" + prefix_ + name + "\" " + what +
                               ": the file is no whole pool of this version; fit the pool again");
  }

 private:
  const std::vector<double>& find(const char* name) const {
    const auto found = numbers_.find(prefix_ + name);
    if (found == numbers_.end()) fail(name, "is missing");
    return found->second;
  }

  bool loading_;
  Numbers numbers_;
  std::string source_, prefix_;
};

}  // namespace screen
