// Images of another dataset as a source whose bytes are the pixels themselves, a byte each, as no image format packs
// them.
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include <trainyard/host.hpp>
#include <trainyard/staged_dataset.hpp>

namespace {

using namespace trainyard;

class RawImages final : public StagedDataset {
 public:
  struct Options {
    PluginList<Dataset> of;
  };
  static void describe(Manifest<Options>& m) {
    m.name("raw_images").version("1.0.0").summary("Images whose bytes are their pixels.");
    m.option("of", &Options::of, "the dataset of images with numbers 0 to 255, one table").required();
  }
  explicit RawImages(const Options& options) : options_(options) {}

  void open(const std::string& split) override {
    made_ = std::move(make_plugins(host(), options_.of).at(0));
    made_->open(split);
    for (std::int64_t i = 0; i < made_->size(); ++i)
      images_.push_back(made_->read(std::vector<std::int64_t>{i}, {RandomStream(0, "unused")})
                            .input()[0]
                            .to(at::kByte)
                            .contiguous());
  }
  std::int64_t size() const override { return made_->size(); }
  BatchSchema schema() const override { return made_->schema(); }
  std::vector<std::int64_t> labels() const override { return made_->labels(); }
  std::string source() const override { return "raw images"; }
  std::string decoding() const override { return "none"; }
  std::vector<std::uint8_t> fetch(std::int64_t index) const override {
    const at::Tensor& image = images_[static_cast<std::size_t>(index)];
    const auto* const pixels = image.const_data_ptr<std::uint8_t>();
    return {pixels, pixels + image.numel()};
  }
  Sample decode(std::int64_t, std::span<const std::uint8_t> bytes) const override {
    at::Tensor image = at::empty(images_.front().sizes(), at::kByte);
    std::ranges::copy(bytes, image.mutable_data_ptr<std::uint8_t>());
    return {image};
  }
  Batch assemble(std::span<const std::int64_t>, std::span<const Sample> samples,
                 const ReadContext&) const override {
    std::vector<at::Tensor> images;
    for (const Sample& each : samples) images.push_back(each.front());
    Batch batch;
    batch.inputs = {at::stack(images).to(at::kFloat)};
    batch.target = at::empty({static_cast<std::int64_t>(samples.size())}, at::kLong).zero_();
    return batch;
  }

 private:
  Options options_;
  std::unique_ptr<Dataset> made_;
  std::vector<at::Tensor> images_;
};

}  // namespace

TRAINYARD_PLUGIN(RawImages)
