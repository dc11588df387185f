// What a dataset does to pixels in [0, 1] before a network sees them, as its options say: (x - mean) / std.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <trainyard/error.hpp>
#include <trainyard/value.hpp>

#include "kernels.hpp"

namespace corrupted {

class PixelScale {
 public:
  PixelScale() = default;
  /// Each has no number (0 and 1 are meant), one, one a channel or one a value of the image. Throws ConfigError for others.
  PixelScale(const std::vector<double>& mean, const std::vector<double>& std, const Picture& shape)
      : mean_(spread("mean", mean, 0.0, shape)), std_(spread("std", std, 1.0, shape)) {}

  bool empty() const { return mean_.empty(); }
  void apply(std::span<float> values) const {
    for (std::size_t i = 0; i < mean_.size(); ++i)
      values[i] = static_cast<float>((values[i] - mean_[i]) / std_[i]);
  }
  /// Returns pixels to what they were. What rounding puts beyond [0, 1] by less than 1e-5 comes back into it.
  void undo(std::span<float> values) const {
    constexpr float slack = 1e-5f;
    for (std::size_t i = 0; i < mean_.size(); ++i)
      values[i] = static_cast<float>(values[i] * std_[i] + mean_[i]);
    for (float& each : values) {
      if (each < 0.0f && each > -slack) each = 0.0f;
      if (each > 1.0f && each < 1.0f + slack) each = 1.0f;
    }
  }

 private:
  static std::vector<double> spread(const char* name, const std::vector<double>& given, double otherwise,
                                    const Picture& shape) {
    const auto channels = static_cast<std::size_t>(shape.channels),
               plane = static_cast<std::size_t>(shape.plane());
    if (given.size() > 1 && given.size() != channels && given.size() != channels * plane)
      throw trainyard::ConfigError(std::string("of: ") + name + " has " + std::to_string(given.size()) +
                                   " numbers, and the images have " + std::to_string(channels) +
                                   " channels: give one number, one a channel, or one a value");
    std::vector<double> all(channels * plane, otherwise);
    for (std::size_t i = 0; i < all.size() && !given.empty(); ++i)
      all[i] = given[given.size() == 1 ? 0 : given.size() == channels ? i / plane : i];
    return all;
  }

  std::vector<double> mean_, std_;  ///< one a value of an image
};

/// Returns a list of numbers from the options of a dataset; none where it has no such list.
inline std::vector<double> numbers_in(const trainyard::Table& options, const char* key) {
  std::vector<double> numbers;
  const trainyard::Value* const found = options.find(key);
  if (found == nullptr || found->get_if<trainyard::Array>() == nullptr) return numbers;
  for (const trainyard::Value& each : found->as<trainyard::Array>()) {
    if (const auto* number = each.get_if<double>()) numbers.push_back(*number);
    if (const auto* number = each.get_if<std::int64_t>()) numbers.push_back(static_cast<double>(*number));
  }
  return numbers;
}

/// Returns the options of the dataset within one that stands around it; null where it stands around none.
inline trainyard::Table* within(trainyard::Table& options) {
  trainyard::Value* const of = options.find("of");
  if (of == nullptr || of->get_if<trainyard::Array>() == nullptr) return nullptr;
  auto& tables = of->as<trainyard::Array>();
  return tables.size() == 1 ? tables.front().get_if<trainyard::Table>() : nullptr;
}

/// Returns the options of the dataset that reads the files: `options`, or those within them, and so on.
inline trainyard::Table& innermost(trainyard::Table& options) {
  trainyard::Table* const next = within(options);
  return next == nullptr ? options : innermost(*next);
}

/// Throws ConfigError where the options of a dataset scale by what it learns, so that pixels are not known from them.
inline void check_scale_is_given(const trainyard::Table& options) {
  const trainyard::Value* const learns = options.find("standardize");
  const trainyard::Value* const from = options.find("standardize_with");
  const bool by_itself =
      (learns != nullptr && learns->get_if<bool>() != nullptr && learns->as<bool>()) ||
      (from != nullptr && from->get_if<std::string>() != nullptr && !from->as<std::string>().empty());
  if (by_itself)
    throw trainyard::ConfigError(
        "the dataset standardises by what it learns of its rows, and corruptions are made of pixels in [0, "
        "1]: "
        "give its mean and std as numbers, in place of standardize");
}

}  // namespace corrupted
