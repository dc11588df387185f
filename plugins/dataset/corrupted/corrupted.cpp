// Images of another dataset, corrupted as those of CIFAR-10-C are: ahead of its mean and std, where pixels are in [0, 1].
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <trainyard/helpers/shape_text.hpp>

#include "../staged_around.hpp"
#include "kernels.hpp"
#include "pixel_scale.hpp"

namespace {

using namespace trainyard;
using corrupted::Corruption, corrupted::Picture, corrupted::PixelScale;
using Samples = std::vector<std::int64_t>;

/// New data is not corrupted, but it is scaled.
class ScaledData final : public NewData {
 public:
  ScaledData(std::unique_ptr<NewData> within, std::function<void(Batch&)> scale)
      : within_(std::move(within)), scale_(std::move(scale)) {}
  Batch next(std::int64_t most) override {
    Batch batch = within_->next(most);
    scale_(batch);
    return batch;
  }
  std::string name(std::int64_t sample) const override { return within_->name(sample); }
  std::pair<std::int64_t, std::int64_t> progress() const override { return within_->progress(); }

 private:
  std::unique_ptr<NewData> within_;
  std::function<void(Batch&)> scale_;
};

class Corrupted final : public datasets::StagedAround {
 public:
  struct Options {
    PluginList<Dataset> of;
    std::vector<Corruption> corruptions;
    std::vector<std::int64_t> severity = {3};
    double eps = 0.0;
    std::uint64_t seed = 0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("corrupted")
        .version("1.0.0")
        .summary("Images of another dataset with noise, blur, other light and compression.");
    m.option("of", &Options::of, "the dataset, one table, as in [{ type = \"cifar\", ... }]").required();
    m.option("corruptions", &Options::corruptions,
             "one is drawn for each sample; empty: the split stays clean. uniform_noise is added to what the "
             "network sees, the others change pixels in [0, 1]");
    m.option("severity", &Options::severity,
             "one number, or [least, most], from which one is drawn for each sample; 0 leaves a sample clean")
        .range(0, corrupted::most_severe);
    m.option("eps", &Options::eps, "largest number that uniform_noise adds or takes away").min(0.0);
    m.option("seed", &Options::seed,
             "of the draws for splits that are evaluated, the same in every run; the training split draws "
             "anew in each epoch, by the seed of the run")
        .max(9007199254740991.0);
  }
  explicit Corrupted(const Options& options) : options_(options) {}

  void open(const std::string& split) override {
    check_options();
    trains_ = split == "train";
    PluginList<Dataset> of = options_.of;
    if (needs_pixels() && of.tables.size() == 1) take_scale(corrupted::innermost(of.tables.front()));
    make_within(host(), of);
    open_within(split, taken());
    if (options_.corruptions.empty()) return;
    set_shape(within().schema());
    if (needs_pixels()) scale_ = PixelScale(mean_, std_, shape_);
  }

  Batch read(std::span<const std::int64_t> indices, const ReadContext& context) const override {
    return corrupt(within().read(indices, context), indices, context);
  }

  std::unique_ptr<NewData> read_new(const std::string& path) const override {
    std::unique_ptr<NewData> data = StagedAround::read_new(path);
    if (scale_.empty()) return data;
    return std::make_unique<ScaledData>(std::move(data), [this](Batch& batch) {
      for (std::int64_t i = 0; i < batch.input().size(0); ++i) scale_.apply(values_of(batch, i));
    });
  }

  Batch assemble(std::span<const std::int64_t> indices, std::span<const Sample> samples,
                 const ReadContext& context) const override {
    return corrupt(StagedAround::assemble(indices, samples, context), indices, context);
  }

 private:
  bool has(Corruption corruption) const {
    return std::ranges::find(options_.corruptions, corruption) != options_.corruptions.end();
  }
  bool needs_pixels() const {
    return std::ranges::any_of(options_.corruptions,
                               [](Corruption each) { return each != Corruption::uniform_noise; });
  }

  void check_options() const {
    const auto& severity = options_.severity;
    if (severity.empty() || severity.size() > 2 || severity.front() > severity.back())
      throw ConfigError("severity is no number from 0 to 5 and no range of them: give 3, say, or [0, 5]");
    if (has(Corruption::uniform_noise) && options_.eps == 0.0)
      throw ConfigError("corruptions: uniform_noise adds at most eps, which is 0: set eps");
    if (!has(Corruption::uniform_noise) && options_.eps > 0.0)
      throw ConfigError("eps is of uniform_noise, which corruptions does not name: add it, or leave eps out");
  }

  /// From then on the dataset gives pixels in [0, 1], and this one scales them.
  void take_scale(Table& options) {
    corrupted::check_scale_is_given(options);
    mean_ = corrupted::numbers_in(options, "mean");
    std_ = corrupted::numbers_in(options, "std");
    options.erase("mean");
    options.erase("std");
  }

  void set_shape(const BatchSchema& schema) {
    const bool one =
        schema.inputs.size() == 1 && schema.one_row_a_sample() && schema.inputs.front().dtype == at::kFloat;
    const std::vector<std::int64_t> shape = one ? schema.inputs.front().shape : std::vector<std::int64_t>();
    const bool image = shape.size() == 3 && (shape[0] == 1 || shape[0] == 3);
    if (!one || (needs_pixels() && !image))
      throw ConfigError("of: the samples of the dataset \"" + type_within() + "\" are " +
                        (one ? shape_text(shape) : std::string("no single field of numbers")) +
                        ", and corruptions are of images [channels, height, width] with 1 or 3 channels" +
                        (one && type_within() == "csv" ? ": give it a shape, as in [1, 8, 8]" : ""));
    shape_ = image ? Picture{shape[0], shape[1], shape[2], {}} : Picture{1, 1, 1, {}};
    if (has(Corruption::saturate) && shape_.channels != 3)
      throw ConfigError(
          "corruptions: saturate changes colours, and the images have 1 channel, of grey: leave it out");
  }

  std::span<float> values_of(Batch& batch, std::int64_t i) const {
    at::Tensor& images = batch.inputs.front();
    const std::int64_t size = images.numel() / images.size(0);
    return {images.mutable_data_ptr<float>() + i * size, static_cast<std::size_t>(size)};
  }

  Batch corrupt(Batch batch, std::span<const std::int64_t> indices, const ReadContext& context) const {
    if (options_.corruptions.empty()) return batch;
    batch.inputs.front() = batch.input().contiguous();
    // A number of the stream that no dataset draws: they count from 0.
    const std::uint64_t seed = trains_ ? context.random.bits(std::uint64_t{1} << 48) : options_.seed;
    for (std::size_t i = 0; i < indices.size(); ++i)
      corrupt_one(values_of(batch, static_cast<std::int64_t>(i)), seed,
                  trains_ ? context.position + static_cast<std::int64_t>(i) : indices[i]);
    return batch;
  }

  void corrupt_one(std::span<float> values, std::uint64_t seed, std::int64_t sample) const {
    const RandomStream choice(seed, "corrupted", static_cast<std::uint64_t>(sample));
    const std::int64_t least = options_.severity.front(), most = options_.severity.back();
    const std::int64_t severity =
        least + static_cast<std::int64_t>(choice.below(0, static_cast<std::uint64_t>(most - least + 1)));
    const Corruption which = options_.corruptions[choice.below(1, options_.corruptions.size())];
    const bool on_pixels = which != Corruption::uniform_noise;
    if (severity > 0 && on_pixels) {
      check_range(values);
      Picture picture = shape_;
      picture.values = values;
      corrupted::corrupt(which, severity, corrupted::stream_of(which, seed, sample), picture);
    }
    scale_.apply(values);
    if (severity > 0 && !on_pixels)
      corrupted::add_uniform_noise(options_.eps, corrupted::stream_of(which, seed, sample), values);
  }

  void check_range(std::span<const float> values) const {
    const auto [least, most] = std::ranges::minmax(values);
    if (least >= 0.0f && most <= 1.0f) return;
    throw ConfigError("of: the pixels of the dataset \"" + type_within() + "\" go from " +
                      std::to_string(least) + " to " + std::to_string(most) +
                      " ahead of its mean and std, and corruptions are of pixels in [0, 1]: set its scale to "
                      "the largest number of the files");
  }

  Options options_;
  bool trains_ = false;
  std::vector<double> mean_, std_;  ///< of the dataset within, which goes without
  Picture shape_;                   ///< without values
  PixelScale scale_;                ///< empty: the dataset within scales
};

}  // namespace

TRAINYARD_PLUGIN(Corrupted)
