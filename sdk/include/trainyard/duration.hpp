// Lengths of training as run files write them: "10ep", "1000ba", "5e6sp", "2e9tok", "90s", "1h30m", "20%".
//   ep epochs | ba optimizer steps | sp samples | tok tokens | s m h d wall time | % of trainer.max_duration
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("duration.hpp");

namespace trainyard {

/// The sizes of one step and one epoch of a run; the host derives them from the data and the batch sizes.
struct RunScale {
  std::int64_t steps_per_epoch = 0;
  std::int64_t samples_per_epoch = 0;
  std::int64_t samples_per_step = 0;  ///< the global batch
  std::int64_t tokens_per_sample = 0;
  std::int64_t total_steps = 0;  ///< of trainer.max_duration; 0 where it is not known (wall time)
};

struct Duration {
  enum class Unit : std::uint8_t { epochs, steps, samples, tokens, seconds, percent };

  double count = 0.0;
  Unit unit = Unit::steps;

  bool operator==(const Duration&) const = default;

  /// More steps than any run takes (three centuries at one a microsecond), yet so few that a double holds
  /// every step count exactly and sums and multiples of two fit an integer.
  static constexpr std::int64_t most_steps = std::int64_t{1} << 53;

  /// Parses the grammar above: a finite, non-negative number and a unit, without spaces; h, m and s combine
  /// in that order ("1h30m"). Returns nothing for any other text.
  static std::optional<Duration> parse(std::string_view text);

  /// Returns the shortest text that parses to the same duration.
  std::string text() const;

  /// Returns the duration in optimizer steps, rounded to the nearest (half up) so that "50%" and "2.5ep" hit
  /// the step they name; most_steps, which no run reaches, for a longer duration. Returns nothing where the
  /// scale does not tell: wall time, or a percentage of a run of unknown length.
  std::optional<std::int64_t> steps(const RunScale& scale) const;
};

inline std::optional<Duration> Duration::parse(std::string_view text) {
  struct Suffix {
    std::string_view name;
    Unit unit;
    double factor;
  };
  constexpr Suffix suffixes[] = {
      {"ep", Unit::epochs, 1},    {"ba", Unit::steps, 1},   {"sp", Unit::samples, 1},
      {"tok", Unit::tokens, 1},   {"%", Unit::percent, 1},  {"d", Unit::seconds, 86400},
      {"h", Unit::seconds, 3600}, {"m", Unit::seconds, 60}, {"s", Unit::seconds, 1},
  };
  Duration result;
  double last_factor = 0.0;  // of the wall-time part read before; parts must get smaller
  for (bool first = true; first || !text.empty(); first = false) {
    if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
    double number = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || !std::isfinite(number)) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    const Suffix* found = nullptr;
    for (const Suffix& suffix : suffixes)
      if (text.substr(0, suffix.name.size()) == suffix.name) {
        found = &suffix;
        break;
      }
    if (found == nullptr) return std::nullopt;
    text.remove_prefix(found->name.size());
    const bool time = found->unit == Unit::seconds;
    if (!first && (!time || result.unit != Unit::seconds || found->factor >= last_factor))
      return std::nullopt;
    if (!time && !text.empty()) return std::nullopt;
    result.unit = found->unit;
    result.count += number * found->factor;
    last_factor = found->factor;
  }
  if (!std::isfinite(result.count)) return std::nullopt;
  return result;
}

inline std::string Duration::text() const {
  constexpr const char* names[] = {"ep", "ba", "sp", "tok", "s", "%"};
  char buffer[64];
  const auto written = std::to_chars(buffer, buffer + sizeof buffer, count);
  return std::string(buffer, written.ptr) + names[static_cast<int>(unit)];
}

inline std::optional<std::int64_t> Duration::steps(const RunScale& scale) const {
  const auto rounded = [](double value) {
    const double whole = std::floor(value + 0.5);
    return whole < static_cast<double>(most_steps) ? static_cast<std::int64_t>(whole) : most_steps;
  };
  // Samples count along epochs, whose last batch may be ragged: whole epochs first, the rest in steps.
  const auto of_samples = [&](double samples) -> std::optional<std::int64_t> {
    if (scale.samples_per_step <= 0 || scale.samples_per_epoch <= 0) return std::nullopt;
    const double epochs = std::floor(samples / static_cast<double>(scale.samples_per_epoch));
    const double rest = samples - epochs * static_cast<double>(scale.samples_per_epoch);
    return rounded(epochs * static_cast<double>(scale.steps_per_epoch) +
                   std::ceil(rest / static_cast<double>(scale.samples_per_step)));
  };
  switch (unit) {
    case Unit::steps: return rounded(count);
    case Unit::epochs:
      if (scale.steps_per_epoch <= 0) return std::nullopt;
      return rounded(count * static_cast<double>(scale.steps_per_epoch));
    case Unit::samples: return of_samples(count);
    case Unit::tokens:
      if (scale.tokens_per_sample <= 0) return std::nullopt;
      return of_samples(count / static_cast<double>(scale.tokens_per_sample));
    case Unit::percent:
      if (scale.total_steps <= 0) return std::nullopt;
      return rounded(count / 100.0 * static_cast<double>(scale.total_steps));
    case Unit::seconds: return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace trainyard
