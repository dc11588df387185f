// Folders of JPEG and PNG files, one folder a class, decoded on the loader's threads.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>

#include <trainyard/host.hpp>
#include <trainyard/learns.hpp>
#include <trainyard/new_data.hpp>
#include <trainyard/staged_dataset.hpp>
#include <trainyard/state.hpp>

#include "../images.hpp"
#include "../learned_classes.hpp"
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

std::string ending_of(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return ending;
}

bool is_image(const fs::path& path) {
  const std::string ending = ending_of(path);
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

void check_image_file(const fs::directory_entry& entry) {
  if (entry.is_directory())
    throw DataError(entry.path().string() + ": a folder within that of a class, which holds files alone");
  if (!is_image(entry.path()))
    throw DataError(entry.path().string() + ": found \"" + ending_of(entry.path()) +
                    "\", expected .jpg, .jpeg or .png: move it out of the folder");
}

std::vector<std::uint8_t> bytes_of(const std::string& path) {
  datasets::files::Reader file(path);
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) file.fail(error.message());
  std::vector<std::uint8_t> bytes;
  file.append(bytes, size);
  return bytes;
}

/// Images that a user has: a file, or all those in a folder and the folders of it, in the order of their names. One
/// that is broken is named and left out.
class NewImages final : public NewData {
 public:
  /// Writes an image, [channels, height, width], from the bytes of a file. Throws DataError.
  using Write = std::function<void(const std::string& path, std::span<const std::uint8_t> bytes, float* out)>;

  NewImages(const std::string& path, std::vector<std::int64_t> shape, Write write, Host& host)
      : path_(path), shape_(std::move(shape)), write_(std::move(write)), host_(host) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files_.push_back(path);
      return;
    }
    for (fs::recursive_directory_iterator each(path, error), end; !error && each != end;
         each.increment(error))
      if (each->is_regular_file() && is_image(each->path())) files_.push_back(each->path().string());
    if (error) throw DataError(path + ": " + error.message());
    if (files_.empty()) throw DataError(path + ": no .jpg, .jpeg or .png file lies there");
    std::sort(files_.begin(), files_.end());
  }

  Batch next(std::int64_t most) override {
    names_.clear();
    const std::int64_t size = shape_[0] * shape_[1] * shape_[2];
    std::vector<float> pixels;
    Batch batch;
    for (; at_ < files_.size() && std::ssize(names_) < most; ++at_) {
      pixels.resize(static_cast<std::size_t>(size) * (names_.size() + 1));
      try {
        write_(files_[at_], bytes_of(files_[at_]),
               pixels.data() + static_cast<std::size_t>(size) * names_.size());
      } catch (const DataError& error) {
        host_.log(LogLevel::warning, error.what());
        ++broken_;
        continue;
      }
      names_.push_back(files_[at_]);
      batch.indices.push_back(count_++);
    }
    if (names_.empty()) finish();
    batch.inputs.push_back(at::empty({std::ssize(names_), shape_[0], shape_[1], shape_[2]}, at::kFloat));
    std::copy_n(pixels.begin(), batch.inputs[0].numel(), batch.inputs[0].mutable_data_ptr<float>());
    return batch;
  }
  std::string name(std::int64_t sample) const override { return names_[static_cast<std::size_t>(sample)]; }
  std::pair<std::int64_t, std::int64_t> progress() const override {
    return {static_cast<std::int64_t>(at_), std::ssize(files_)};
  }

 private:
  void finish() {
    const std::string told = path_ + ": " + std::to_string(broken_) + " of " + std::to_string(files_.size()) +
                             " files cannot be decoded";
    if (broken_ == files_.size()) throw DataError(told + ": nothing is left");
    if (broken_ > 0) host_.log(LogLevel::warning, told + ", and are left out");
    broken_ = 0;
  }

  std::string path_;
  std::vector<std::int64_t> shape_;
  Write write_;
  Host& host_;
  std::vector<std::string> files_, names_;  ///< all, and of the last batch
  std::size_t at_ = 0, broken_ = 0;
  std::int64_t count_ = 0;
};

class ImageFolder final : public StagedDataset, public Learns, public ReadsNewData {
 public:
  struct Options : datasets::ImageOutputOptions {
    std::string path;
    std::vector<std::int64_t> size;
    std::string fit = "crop";
    bool grey = false;
    std::vector<std::string> classes;
    std::string broken = "error";
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
             "names of the folders, in the order of the labels; empty: those of the training split, sorted");
    m.option("broken", &Options::broken,
             "error: a file that cannot be decoded ends the run when it is read; leave_out: all files are "
             "decoded once "
             "ahead of it, and the broken ones are named and left out")
        .one_of({"error", "leave_out"});
    datasets::describe_image_output(m);
  }
  explicit ImageFolder(const Options& options) : options_(options), output_(options), plain_(options) {}

  void open(const std::string& split) override {
    if (options_.size.empty() || options_.size.size() > 2)
      throw ConfigError("size has " + std::to_string(options_.size.size()) +
                        " numbers: give [height, width], or [side]");
    output_.open(split, channels(), height(), width());
    plain_.open("", channels(), height(), width());
    const std::vector<fs::directory_entry> found = entries(options_.path);
    for (const fs::directory_entry& entry : found)
      if (entry.is_directory()) list(entry);
    if (files_.empty())
      throw DataError(options_.path + ": no image in a folder of it: expected CLASS/NAME.jpg or .png");
    if (options_.broken == "leave_out") leave_out_broken();
    const std::vector<bool> taken = datasets::mask_of(taken_, size());
    if (seen_.empty()) learn(found, taken);  // nothing was given: this is the training split
    if (!options_.classes.empty()) classes_ = options_.classes;
    label(split, taken);
  }

  void set_taken(TakenSamples taken) override { taken_ = std::move(taken); }
  std::vector<std::int64_t> ungraded() const override { return ungraded_; }

  Table learned() const override {
    Table table;
    table.set("classes", Array(classes_.begin(), classes_.end()));
    if (seen_ != classes_) table.set("seen", Array(seen_.begin(), seen_.end()));
    return table;
  }
  void use(const Table& learned) override {
    classes_ = names_in(learned, "classes");
    seen_ = learned.find("seen") != nullptr ? names_in(learned, "seen") : classes_;
  }
  std::vector<std::string> class_names() const override { return classes_; }
  std::unique_ptr<NewData> read_new(const std::string& path) const override {
    if (path == "-") throw DataError("images cannot be read from standard input: give files or folders");
    const auto write = [this](const std::string& file, std::span<const std::uint8_t> bytes, float* out) {
      plain_.write(pixels_of(file, bytes).const_data_ptr<std::uint8_t>(), out, {RandomStream(0, "")}, 0);
    };
    return std::make_unique<NewImages>(path, std::vector<std::int64_t>{channels(), height(), width()}, write,
                                       host());
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

  std::vector<std::uint8_t> fetch(std::int64_t index) const override { return bytes_of(path(index)); }
  Sample decode(std::int64_t index, std::span<const std::uint8_t> bytes) const override {
    return {pixels_of(path(index), bytes)};
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
  /// Bytes [channels, height, width].
  at::Tensor pixels_of(const std::string& file, std::span<const std::uint8_t> bytes) const {
    using image_folder::Fit;
    const image_folder::Pixels pixels = image_folder::decode(file, bytes, channels());
    at::Tensor image = at::empty({channels(), height(), width()}, at::kByte);
    image_folder::resize(pixels, height(), width(), options_.fit == "crop" ? Fit::crop : Fit::stretch,
                         image.mutable_data_ptr<std::uint8_t>());
    return image;
  }

  static std::vector<std::string> names_in(const Table& learned, const char* key) {
    const Value* const names = learned.find(key);
    if (names == nullptr || names->get_if<Array>() == nullptr)
      throw DataError(std::string("what was learned of the folders has no ") + key);
    std::vector<std::string> found;
    for (const Value& name : names->as<Array>())
      if (const auto* text = name.get_if<std::string>()) found.push_back(*text);
    return found;
  }

  std::string folder_of(std::size_t i) const { return files_[i].substr(0, files_[i].find('/')); }

  /// Classes are the folders of which the training split takes a file, or all of them where it takes every file.
  void learn(const std::vector<fs::directory_entry>& found, const std::vector<bool>& taken) {
    for (std::size_t i = 0; i < files_.size(); ++i)
      if (taken[i] && (seen_.empty() || seen_.back() != folder_of(i))) seen_.push_back(folder_of(i));
    classes_ = seen_;
    if (taken_) return;
    classes_.clear();
    for (const fs::directory_entry& entry : found)
      if (entry.is_directory()) classes_.push_back(entry.path().filename().string());
  }

  /// Throws DataError for a folder that `classes` of the options does not name, and for one of a training split that
  /// was given its classes and takes a file of it.
  void label(const std::string& split, const std::vector<bool>& taken) {
    std::map<std::string, std::int64_t> numbers;
    for (const std::string& name : classes_) numbers.emplace(name, std::ssize(numbers));
    const std::set<std::string> seen(seen_.begin(), seen_.end());
    datasets::UnseenClasses unlearned, unseen;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      const std::string folder = folder_of(i);
      const auto found = numbers.find(folder);
      const bool known = found != numbers.end();
      if (!known && (!options_.classes.empty() || (split == "train" && taken[i])))
        throw DataError(options_.path + "/" + folder + ": `classes` does not have \"" + folder +
                        "\": add it, or move the folder away");
      if (!known) ungraded_.push_back(static_cast<std::int64_t>(i));
      labels_.push_back(known ? found->second : -1);
      if (taken[i] && !seen.contains(folder))
        (known ? unseen : unlearned).add(folder, path(static_cast<std::int64_t>(i)));
    }
    unlearned.warn(host(), "the split " + split, datasets::UnseenClasses::left_out);
    unseen.warn(host(), "the split " + split, datasets::UnseenClasses::graded);
  }

  void leave_out_broken() {
    constexpr std::size_t most_named = 5;
    std::size_t broken = 0, kept = 0;
    for (std::size_t i = 0; i < files_.size(); ++i) try {
        pixels_of(path(static_cast<std::int64_t>(i)), bytes_of(path(static_cast<std::int64_t>(i))));
        files_[kept++] = files_[i];
      } catch (const DataError& error) {
        if (++broken <= most_named) host().log(LogLevel::warning, error.what());
      }
    if (broken == 0) return;
    const std::string told = options_.path + ": " + std::to_string(broken) + " of " +
                             std::to_string(files_.size()) + " files cannot be decoded";
    if (kept == 0) throw DataError(told + ": nothing is left");
    host().log(LogLevel::warning, told + ", and are left out");
    files_.resize(kept);
  }

  std::int64_t channels() const { return options_.grey ? 1 : 3; }
  std::int64_t height() const { return options_.size.front(); }
  std::int64_t width() const { return options_.size.back(); }
  std::string path(std::int64_t index) const {
    return options_.path + "/" + files_[static_cast<std::size_t>(index)];
  }

  void list(const fs::directory_entry& folder) {
    const std::string name = folder.path().filename().string();
    for (const fs::directory_entry& entry : entries(folder.path().string())) {
      check_image_file(entry);
      files_.push_back(name + "/" + entry.path().filename().string());
    }
  }

  Options options_;
  datasets::ImageOutput output_, plain_;  ///< of the split; of new images, which are not augmented
  std::vector<std::string> classes_;
  std::vector<std::string> seen_;   ///< those of which the training split has a file
  std::vector<std::string> files_;  ///< "CLASS/NAME"
  std::vector<std::int64_t> labels_;
  std::vector<std::int64_t> ungraded_;
  TakenSamples taken_;
};

}  // namespace

TRAINYARD_PLUGIN(ImageFolder)
