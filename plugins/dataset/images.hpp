// What the datasets of 8-bit images share: images kept as they are on disk, one byte a value, and turned into
// normalised floats, perhaps augmented, while a batch is gathered.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <trainyard/dataset.hpp>

#include "files.hpp"
#include "learned_classes.hpp"

namespace datasets {

using namespace trainyard;

/// How an 8-bit image becomes numbers.
struct ImageOutputOptions {
  double scale = 255.0;
  std::vector<double> mean, std;
  std::int64_t crop_padding = 0;
  bool flip = false;
};

template <class Options>
void describe_image_output(Manifest<Options>& m) {
  m.option("scale", &Options::scale, "values are divided by it").above(0.0);
  m.option("mean", &Options::mean, "subtracted after that: one number, or one a channel; empty: 0");
  m.option("std", &Options::std, "divided by at last: one number, or one a channel; empty: 1").above(0.0);
  m.option("crop_padding", &Options::crop_padding,
           "split train only: pads with zeros on each side and crops at random to the old size")
      .range(0, 1024);
  m.option("flip", &Options::flip, "split train only: mirrors half of the images, left to right");
}

struct ImageOptions : ImageOutputOptions {
  std::int64_t classes = 0;
  std::vector<double> fraction = {0.0, 1.0};
};

template <class Options>
void describe_images(Manifest<Options>& m) {
  m.option("classes", &Options::classes,
           "labels run from 0 to classes - 1; 0: up to the highest in the training split")
      .range(0, 256);
  describe_image_output(m);
  m.option("fraction", &Options::fraction, "[from, to]: the part of the images to take").range(0.0, 1.0);
}

/// Turns images [channels, height, width] of bytes into normalised floats, augmented in the split train. Any
/// thread, once it is open.
class ImageOutput {
 public:
  explicit ImageOutput(const ImageOutputOptions& options) : options_(options) {}

  void open(const std::string& split, std::int64_t channels, std::int64_t height, std::int64_t width) {
    channels_ = channels;
    height_ = height;
    width_ = width;
    augment_ = split == "train" && (options_.crop_padding > 0 || options_.flip);
    tables_.resize(static_cast<std::size_t>(channels));
    for (std::size_t c = 0; c < tables_.size(); ++c) {
      const double mean = channel_value(options_.mean, c, 0.0, "mean");
      const double deviation = channel_value(options_.std, c, 1.0, "std");
      for (int value = 0; value < 256; ++value)
        tables_[c][static_cast<std::size_t>(value)] =
            static_cast<float>((value / options_.scale - mean) / deviation);
    }
  }

  std::int64_t image_size() const { return channels_ * height_ * width_; }

  /// Image number `i` of the batch that is read.
  void write(const std::uint8_t* image, float* out, const ReadContext& context, std::size_t i) const {
    if (augment_)
      copy_augmented(image, out, context.random, static_cast<std::uint64_t>(context.position) + i);
    else
      copy(image, out);
  }

 private:
  double channel_value(const std::vector<double>& list, std::size_t channel, double otherwise,
                       const char* name) const {
    if (list.empty()) return otherwise;
    if (list.size() != 1 && list.size() != static_cast<std::size_t>(channels_))
      throw ConfigError(std::string(name) + " has " + std::to_string(list.size()) +
                        " numbers, the images have " + std::to_string(channels_) +
                        " channels: give one number or one a channel");
    return list.size() == 1 ? list[0] : list[channel];
  }

  void copy(const std::uint8_t* image, float* out) const {
    const std::int64_t plane = height_ * width_;
    for (const std::array<float, 256>& table : tables_) {
      for (std::int64_t p = 0; p < plane; ++p) out[p] = table[image[p]];
      image += plane;
      out += plane;
    }
  }

  void copy_augmented(const std::uint8_t* image, float* out, const RandomStream& random,
                      std::uint64_t draw) const {
    const std::int64_t padding = options_.crop_padding;
    const auto offsets = static_cast<std::uint64_t>(2 * padding + 1);
    const std::int64_t down = static_cast<std::int64_t>(random.below(4 * draw, offsets)) - padding;
    const std::int64_t right = static_cast<std::int64_t>(random.below(4 * draw + 1, offsets)) - padding;
    const bool mirror = options_.flip && random.below(4 * draw + 2, 2) == 1;
    for (const std::array<float, 256>& table : tables_) {
      for (std::int64_t y = 0; y < height_; ++y) {
        const bool row_inside = y + down >= 0 && y + down < height_;
        const std::uint8_t* row = image + (row_inside ? y + down : 0) * width_;
        for (std::int64_t x = 0; x < width_; ++x) {
          const std::int64_t column = (mirror ? width_ - 1 - x : x) + right;
          *out++ = table[row_inside && column >= 0 && column < width_ ? row[column] : 0];
        }
      }
      image += height_ * width_;
    }
  }

  ImageOutputOptions options_;
  std::int64_t channels_ = 0, height_ = 0, width_ = 0;
  bool augment_ = false;
  std::vector<std::array<float, 256>> tables_;  ///< per channel: what a byte becomes
};

class ImageDataset : public Dataset, public Learns {
 public:
  explicit ImageDataset(const ImageOptions& options) : image_options_(options), output_(options) {}

  void open(const std::string& split) final {
    const files::Fraction fraction(image_options_.fraction);
    load();
    keep(fraction);
    const std::vector<std::int64_t> all = labels();
    const std::vector<bool> taken = mask_of(taken_, size());
    if (!learned_.known()) learned_.learn(all, taken);  // nothing was given: this is the training split
    classes_ = image_options_.classes > 0 ? image_options_.classes : learned_.count();
    ungraded_ = learned_.find_unseen(split, all, taken, classes_, "record", host());
    output_.open(split, channels_, height_, width_);
  }

  void set_taken(TakenSamples taken) final { taken_ = std::move(taken); }
  Table learned() const final { return learned_.to_table(); }
  void use(const Table& learned) final { learned_.use(learned); }
  std::vector<std::int64_t> ungraded() const final { return ungraded_; }

  std::int64_t size() const final { return static_cast<std::int64_t>(labels_.size()); }

  BatchSchema schema() const final {
    return {.inputs = {{"image", {channels_, height_, width_}, at::kFloat}},
            .target = {"class", {}, at::kLong},
            .classes = classes_};
  }

  Batch read(std::span<const std::int64_t> indices, const ReadContext& context) const final {
    const auto count = static_cast<std::int64_t>(indices.size());
    Batch batch;
    batch.inputs.push_back(at::empty({count, channels_, height_, width_}, at::kFloat));
    batch.target = at::empty({count}, at::kLong);
    float* out = batch.inputs[0].mutable_data_ptr<float>();
    auto* target = batch.target.mutable_data_ptr<std::int64_t>();
    for (std::size_t i = 0; i < indices.size(); ++i, out += image_size()) {
      output_.write(pixels_.data() + indices[i] * image_size(), out, context, i);
      target[i] = labels_[static_cast<std::size_t>(indices[i])];
    }
    return batch;
  }

  std::vector<std::int64_t> labels() const final { return {labels_.begin(), labels_.end()}; }

 protected:
  /// Fills the members below; throws DataError.
  virtual void load() = 0;

  std::int64_t image_size() const { return channels_ * height_ * width_; }

  /// The message for a label that `classes` does not allow; empty where it is fine.
  std::string label_error(std::uint8_t label) const {
    if (image_options_.classes == 0 || label < image_options_.classes) return {};
    return "label " + std::to_string(label) +
           " is out of range: classes = " + std::to_string(image_options_.classes) + " allows 0 to " +
           std::to_string(image_options_.classes - 1);
  }

  std::int64_t channels_ = 0, height_ = 0, width_ = 0;
  std::vector<std::uint8_t> pixels_;  ///< [size, channels, height, width]
  std::vector<std::uint8_t> labels_;  ///< at least one

 private:
  void keep(const files::Fraction& fraction) {
    const auto all = static_cast<double>(size());
    const auto from = static_cast<std::int64_t>(fraction.from * all),
               to = static_cast<std::int64_t>(fraction.to * all);
    if (from == to)
      throw ConfigError("none of the " + std::to_string(size()) + " images falls into fraction: widen it");
    if (to - from == size()) return;
    labels_ = {labels_.begin() + from, labels_.begin() + to};
    pixels_ = {pixels_.begin() + from * image_size(), pixels_.begin() + to * image_size()};
  }

  ImageOptions image_options_;
  ImageOutput output_;
  TakenSamples taken_;
  NumberedClasses learned_;
  std::vector<std::int64_t> ungraded_;
  std::int64_t classes_ = 0;
};

}  // namespace datasets
