// What is searched: keys of the run file and the values that each may have.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <trainyard/error.hpp>
#include <trainyard/manifest.hpp>

#include "knob.hpp"
#include "lib/printed.hpp"

namespace studies {

/// A number as a run file has it: whole ones without a point, which is right for keys of both kinds.
inline std::string key_text(double value) {
  const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
  return whole ? trainyard::lib::printed("%.0f", value) : trainyard::lib::shortest(value);
}

/// Values of one key, each given.
struct Axis {
  std::string key;
  std::vector<double> values;
  std::vector<std::string> choices;

  static void describe(trainyard::Fields<Axis>& m) {
    m.option("key", &Axis::key, "a key of the run file: \"optimizer.lr\"").required();
    m.option("values", &Axis::values, "numbers that it may have");
    m.option("choices", &Axis::choices, "or words, or other TOML values in quotes: \"true\", \"[64, 10]\"");
  }

  std::vector<std::string> texts() const {
    std::vector<std::string> all = choices;
    for (const double value : values) all.push_back(key_text(value));
    if (all.empty())
      throw trainyard::ConfigError("the axis of `" + key +
                                   "` has neither `values` nor `choices`: give it some");
    return all;
  }
};

/// A key, with the values that it may have.
struct Dimension {
  std::string key;
  std::optional<double> low, high;
  bool log = false, integer = false;
  std::string unit;
  std::vector<double> values;
  std::vector<std::string> choices;

  template <class Struct>
  static void describe(trainyard::Fields<Struct>& m) {
    m.option("key", &Dimension::key, "a key of the run file: \"optimizer.lr\"").required();
    m.option("low", &Dimension::low, "least value").also({"min", "lower"});
    m.option("high", &Dimension::high, "largest value").also({"max", "upper"});
    m.option("log", &Dimension::log, "even in the logarithm: for what spans several powers of ten");
    m.option("integer", &Dimension::integer, "whole numbers only").also({"int"});
    m.option("unit", &Dimension::unit, "what follows each number: \"ep\" of trainer.max_duration");
    m.option("values", &Dimension::values, "in place of low and high: numbers, of which it has one");
    m.option("choices", &Dimension::choices,
             "or words, or other TOML values in quotes: \"true\", \"[64, 10]\"");
  }

  bool is_range() const { return low.has_value(); }

  void check() const {
    const auto refuse = [&](const std::string& what) {
      throw trainyard::ConfigError("space: `" + key + "` " + what);
    };
    if (low.has_value() != high.has_value()) refuse("has one of `low` and `high`: give it both");
    if (is_range() + !values.empty() + !choices.empty() != 1)
      refuse("needs its values: `low` and `high`, or `values`, or `choices`, and one of these only");
    if (!is_range() && (log || integer))
      refuse("has `log` or `integer`, which say how to draw from `low` to `high`: leave them out");
    if (!unit.empty() && !choices.empty())
      refuse("has `choices`, and a `unit`, which numbers have: leave it out");
    if (!is_range()) return;
    if (!std::isfinite(*high - *low)) refuse("reaches further than numbers do: bring low and high closer");
    if (!(*low < *high))
      refuse("has low = " + key_text(*low) + ", which is not below high = " + key_text(*high));
    if (log && !(*low > 0))
      refuse("is to be even in the logarithm, and low = " + key_text(*low) + " is not above 0");
    if (integer && (*low != std::floor(*low) || *high != std::floor(*high)))
      refuse("has whole numbers only, and bounds that are none");
  }

  /// The value at a place in [0, 1): even in it. Of floats six digits: what a table shows is what was run.
  std::string at(double place) const {
    if (!is_range()) {
      const auto pick = static_cast<std::size_t>(place * static_cast<double>(values.size() + choices.size()));
      return values.empty() ? choices[pick] : key_text(values[pick]) + unit;
    }
    const double end = integer ? *high + 1 : *high;  // each whole number has a part of the same size
    const double value = log ? std::exp(std::log(*low) + place * (std::log(end) - std::log(*low)))
                             : *low + place * (end - *low);
    return key_text(std::clamp(integer ? std::floor(value) : six_digits(value), *low, *high)) + unit;
  }

  /// The same as a coordinate: numbers to choose from are in an order, words are not.
  Knob knob() const {
    if (is_range()) return {.low = *low, .high = *high, .log = log, .integer = integer};
    return {.kind = choices.empty() ? Knob::Kind::steps : Knob::Kind::unordered,
            .count = static_cast<double>(values.size() + choices.size())};
  }
  /// Returns the knob's value that has this text; nothing where none has it.
  std::optional<double> value(const std::string& given) const {
    if (is_range()) {
      double number = 0.0;
      const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), number);
      return error == std::errc{} && text(number) == given ? std::optional(number) : std::nullopt;
    }
    for (std::size_t i = 0; i < values.size() + choices.size(); ++i)
      if (const auto number = static_cast<double>(i); text(number) == given) return number;
    return std::nullopt;
  }
  /// The text of a knob's value.
  std::string text(double value) const {
    if (is_range() && integer) return trainyard::lib::printed("%.0f", std::clamp(value, *low, *high)) + unit;
    if (is_range()) return key_text(std::clamp(six_digits(value), *low, *high)) + unit;
    const auto number = static_cast<std::size_t>(value);
    return values.empty() ? choices[number] : key_text(values[number]) + unit;
  }
};

template <class Key>
void check(const std::vector<Key>& space) {
  if (space.empty())
    throw trainyard::ConfigError(
        "there is nothing to search: say space = [{ key = \"optimizer.lr\", low = 1e-4, high = 1, log = true "
        "}]");
  for (auto each = space.begin(); each != space.end(); ++each) {
    each->check();
    if (std::any_of(space.begin(), each, [&](const Dimension& other) { return other.key == each->key; }))
      throw trainyard::ConfigError("space: `" + each->key + "` is there twice: take one of them out");
  }
}

/// A number in [0, 1) that is a function of its arguments alone: splitmix64 over them (Steele, Lea and Flood, 2014).
inline double uniform(std::uint64_t seed, std::uint64_t trial, std::string_view key) {
  const auto mixed = [](std::uint64_t z) {
    z += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  };
  std::uint64_t state = mixed(mixed(seed) ^ trial);
  for (const char c : key) state = mixed(state ^ static_cast<unsigned char>(c));
  return static_cast<double>(state >> 11) * 0x1p-53;
}

/// Keys with their values: a point of the space.
using Point = std::vector<std::pair<std::string, std::string>>;

/// The one of that number: a function of seed and number, whatever was drawn before.
inline Point draw(const std::vector<Dimension>& space, std::uint64_t seed, std::uint64_t number) {
  Point point;
  for (const Dimension& each : space) point.emplace_back(each.key, each.at(uniform(seed, number, each.key)));
  return point;
}

inline std::vector<std::string> changes(const Point& point) {
  std::vector<std::string> all;
  for (const auto& [key, value] : point) {
    all.push_back(key);
    all.back() += "=" + value;
  }
  return all;
}

/// "lr" of "optimizer.lr"; the whole key where another ends alike.
inline std::vector<std::string> short_keys(const std::vector<Dimension>& space) {
  const auto last = [](const std::string& key) { return key.substr(key.rfind('.') + 1); };
  std::vector<std::string> names;
  for (const Dimension& each : space) {
    const auto alike = std::ranges::count_if(
        space, [&](const Dimension& other) { return last(other.key) == last(each.key); });
    names.push_back(alike > 1 ? each.key : last(each.key));
  }
  return names;
}

}  // namespace studies
