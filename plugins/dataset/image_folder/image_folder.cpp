// Folders of JPEG and PNG files, one folder a class, decoded on the loader's threads.
#include <algorithm>
#include <filesystem>

#include <trainyard/staged_dataset.hpp>
#include <trainyard/state.hpp>

#include "../images.hpp"
#include "resize.hpp"

namespace {

using namespace trainyard;
namespace fs = std::filesystem;

/// What lies in a folder, hidden files aside, in the order of the names.
std::vector<fs::directory_entry> entries(const std::string& folder) {
  std::vector<fs::directory_entry> found;
  std::error_code error;
  for (fs::directory_iterator each(folder, error), end; !error && each != end; each.increment(error))
    if (!each->path().filename().string().starts_with('.')) found.push_back(*each);
  if (error) throw DataError(folder + ": " + error.message());
  std::sort(found.begin(), found.end());
  return found;
}

void check_image_file(const fs::directory_entry& entry) {
  std::string ending = entry.path().extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  if (entry.is_directory())
    throw DataError(entry.path().string() + ": a folder within that of a class, which holds files alone");
  if (ending != ".jpg" && ending != ".jpeg" && ending != ".png")
    throw DataError(entry.path().string() + ": found \"" + ending +
                    "\", expected .jpg, .jpeg or .png: move it out of the folder");
}

class ImageFolder final : public StagedDataset {
 public:
  struct Options : datasets::ImageOutputOptions {
    std::string path;
    std::vector<std::int64_t> size;
    std::string fit = "crop";
    bool grey = false;
    std::vector<std::string> classes;
  };
  static void describe(Manifest<Options>& m) {
    m.name("image_folder").version("1.0.0").summary("Folders of JPEG and PNG files, one folder a class.");
    m.option("path", &Options::path, "folder that holds the folders of the classes").required().file();
    m.option("size", &Options::size, "[height, width] of the samples, or [side]; files may have any size")
        .required()
        .range(1, 4096);
    m.option(
         "fit", &Options::fit,
         "crop: the largest part around the centre that has the proportions of `size`; stretch: all of it")
        .one_of({"crop", "stretch"});
    m.option("grey", &Options::grey, "one channel, of luma, in place of red, green and blue");
    m.option("classes", &Options::classes,
             "names of the folders, in the order of the labels; empty: those that are there, sorted");
    datasets::describe_image_output(m);
  }
  explicit ImageFolder(const Options& options) : options_(options), output_(options) {}

  void open(const std::string& split) override {
    if (options_.size.empty() || options_.size.size() > 2)
      throw ConfigError("size has " + std::to_string(options_.size.size()) +
                        " numbers: give [height, width], or [side]");
    output_.open(split, channels(), height(), width());
    classes_ = options_.classes;
    const std::vector<fs::directory_entry> found = entries(options_.path);
    if (classes_.empty())
      for (const fs::directory_entry& entry : found)
        if (entry.is_directory()) classes_.push_back(entry.path().filename().string());
    for (const fs::directory_entry& entry : found)
      if (entry.is_directory()) list(entry);
    if (files_.empty())
      throw DataError(options_.path + ": no image in a folder of it: expected CLASS/NAME.jpg or .png");
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  std::vector<std::int64_t> labels() const override { return labels_; }
  BatchSchema schema() const override {
    return {.inputs = {{"image", {channels(), height(), width()}, at::kFloat}},
            .target = {"class", {}, at::kLong},
            .classes = static_cast<std::int64_t>(classes_.size())};
  }

  /// Names, sizes and times of change of the files: what was written anew is another source.
  std::string source() const override {
    std::string text;
    for (const std::string& file : files_) {
      std::error_code error;
      const fs::path path = fs::path(options_.path) / file;
      const auto size = fs::file_size(path, error);
      const auto changed = fs::last_write_time(path, error);
      if (error) throw DataError(path.string() + ": " + error.message());
      text += file + '\0' + std::to_string(size) + ' ' + std::to_string(changed.time_since_epoch().count()) +
              '\n';
    }
    return text;
  }
  std::string decoding() const override {
    return "image_folder 1, " + std::to_string(channels()) + " x " + std::to_string(height()) + " x " +
           std::to_string(width()) + ", " + options_.fit;
  }

  std::vector<std::uint8_t> fetch(std::int64_t index) const override {
    datasets::files::Reader file(path(index));
    std::error_code error;
    const auto size = fs::file_size(file.path(), error);
    if (error) file.fail(error.message());
    std::vector<std::uint8_t> bytes;
    file.append(bytes, size);
    return bytes;
  }

  Sample decode(std::int64_t index, std::span<const std::uint8_t> bytes) const override {
    using image_folder::Fit;
    const image_folder::Pixels pixels = image_folder::decode(path(index), bytes, channels());
    at::Tensor image = at::empty({channels(), height(), width()}, at::kByte);
    image_folder::resize(pixels, height(), width(), options_.fit == "crop" ? Fit::crop : Fit::stretch,
                         image.mutable_data_ptr<std::uint8_t>());
    return {image};
  }

  Batch assemble(std::span<const std::int64_t> indices, std::span<const Sample> samples,
                 const ReadContext& context) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    Batch batch;
    batch.inputs.push_back(at::empty({count, channels(), height(), width()}, at::kFloat));
    batch.target = at::empty({count}, at::kLong);
    float* out = batch.inputs[0].mutable_data_ptr<float>();
    auto* target = batch.target.mutable_data_ptr<std::int64_t>();
    for (std::size_t i = 0; i < indices.size(); ++i, out += output_.image_size()) {
      output_.write(samples[i].front().const_data_ptr<std::uint8_t>(), out, context, i);
      target[i] = labels_[static_cast<std::size_t>(indices[i])];
    }
    return batch;
  }

 private:
  std::int64_t channels() const { return options_.grey ? 1 : 3; }
  std::int64_t height() const { return options_.size.front(); }
  std::int64_t width() const { return options_.size.back(); }
  std::string path(std::int64_t index) const {
    return options_.path + "/" + files_[static_cast<std::size_t>(index)];
  }

  void list(const fs::directory_entry& folder) {
    const std::string name = folder.path().filename().string();
    const auto label = std::find(classes_.begin(), classes_.end(), name);
    if (label == classes_.end())
      throw DataError(folder.path().string() + ": `classes` does not have \"" + name +
                      "\": add it, or move the folder away");
    for (const fs::directory_entry& entry : entries(folder.path().string())) {
      check_image_file(entry);
      files_.push_back(name + "/" + entry.path().filename().string());
      labels_.push_back(label - classes_.begin());
    }
  }

  Options options_;
  datasets::ImageOutput output_;
  std::vector<std::string> classes_;
  std::vector<std::string> files_;  ///< "CLASS/NAME"
  std::vector<std::int64_t> labels_;
};

}  // namespace

TRAINYARD_PLUGIN(ImageFolder)
