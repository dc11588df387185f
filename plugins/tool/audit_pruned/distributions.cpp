#include "distributions.hpp"

#include <algorithm>

#include <trainyard/error.hpp>
#include <trainyard/helpers/shape_text.hpp>

namespace audit {
namespace {

using namespace trainyard;
using corrupted::Picture, corrupted::PixelScale;

/// Returns the options of a split's dataset: its own, over those that all splits share.
Table options_of(const Table& config, const std::string& split) {
  const Value* const data = config.find("data");
  if (data == nullptr || data->get_if<Table>() == nullptr) return {};
  Table options = data->as<Table>();
  const Value* const own = data->as<Table>().find(split);
  if (own != nullptr && own->get_if<Table>() != nullptr)
    for (const Table::Entry& each : own->as<Table>().entries()) options.set(each.key, each.value);
  return options;
}

/// Whether a dataset, or one within it, has corruptions.
bool corrupts(Table& options) {
  const Value* const list = options.find("corruptions");
  if (list != nullptr && list->get_if<Array>() != nullptr && !list->as<Array>().empty()) return true;
  Table* const within = corrupted::within(options);
  return within != nullptr && corrupts(*within);
}

Picture shape_of(const at::Tensor& inputs) {
  const at::IntArrayRef sizes = inputs.sizes();
  if (sizes.size() == 4 && (sizes[1] == 1 || sizes[1] == 3)) return {sizes[1], sizes[2], sizes[3], {}};
  throw ConfigError(
      "corruptions are of images [channels, height, width] with 1 or 3 channels, and the samples are " +
      shape_text(sizes.slice(1).vec()) + ": leave corruptions out, or give the dataset a shape");
}

void check_range(std::span<const float> pixels) {
  const auto [least, most] = std::ranges::minmax(pixels);
  if (least >= 0.0f && most <= 1.0f) return;
  throw ConfigError(
      "the data's pixels go from " + std::to_string(least) + " to " + std::to_string(most) +
      " ahead of its mean and std, and corruptions are of pixels in [0, 1]: set its scale to the "
      "largest number of the files");
}

}  // namespace

void refuse_corrupted(const Table& config, const std::string& split) {
  Table options = options_of(config, split);
  if (corrupts(options))
    throw ConfigError("[data." + split +
                      "] is corrupted already: give it corruptions = [], and name them to the audit");
}

PixelScale scale_of(const Table& config, const std::string& split, const at::Tensor& inputs) {
  Table options = options_of(config, split);
  const Table& within = corrupted::innermost(options);
  corrupted::check_scale_is_given(within);
  return {corrupted::numbers_in(within, "mean"), corrupted::numbers_in(within, "std"), shape_of(inputs)};
}

at::Tensor inputs_of(const Distribution& distribution, const Samples& samples, std::int64_t first,
                     std::int64_t count, std::uint64_t seed, std::int64_t draw) {
  const at::Tensor clean = samples.inputs.narrow(0, first, count);
  if (distribution.clean()) return clean;
  at::Tensor inputs = clean.clone();
  const auto size = static_cast<std::size_t>(inputs.numel() / count);
  Picture picture = distribution.on_pixels() ? shape_of(inputs) : Picture();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t sample = samples.indices[static_cast<std::size_t>(first + i)];
    const RandomStream random =
        corrupted::stream_of(distribution.corruption, seed, sample, static_cast<std::uint32_t>(draw));
    picture.values = {inputs.mutable_data_ptr<float>() + static_cast<std::size_t>(i) * size, size};
    if (!distribution.on_pixels()) {
      corrupted::add_uniform_noise(distribution.eps, random, picture.values);
      continue;
    }
    samples.scale.undo(picture.values);
    check_range(picture.values);
    corrupted::corrupt(distribution.corruption, distribution.severity, random, picture);
    samples.scale.apply(picture.values);
  }
  return inputs;
}

}  // namespace audit
