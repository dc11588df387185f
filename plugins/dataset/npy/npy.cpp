// Arrays as NumPy saves them.
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>

#include <ATen/ops/empty.h>

#include <trainyard/dataset.hpp>
#include <trainyard/helpers/shape_text.hpp>
#include <trainyard/host.hpp>
#include <trainyard/learns.hpp>
#include <trainyard/new_data.hpp>

#include "../learned_classes.hpp"
#include "arrays.hpp"

namespace {

using namespace trainyard;
using datasets::NpyArray;
using Numbers = std::vector<double>;
using Shape = std::vector<std::int64_t>;

std::int64_t product(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// The array's shape without its first axis, along which the samples lie; that of single numbers is [1].
Shape sample_of(const NpyArray& array) {
  if (array.shape().empty()) array.fail("it is a single number: expected samples along its first axis");
  if (array.size() == 0) array.fail("its shape is " + shape_text(array.shape()) + ": there is no sample");
  return array.shape().size() == 1 ? Shape{1} : Shape(array.shape().begin() + 1, array.shape().end());
}

/// Numbers of samples as the network gets them: (value / scale - mean) / std, by channel.
struct Normal {
  double scale = 1.0;
  Numbers mean, deviation;   ///< one a channel
  std::int64_t channel = 1;  ///< numbers that each channel of a sample has

  /// Of one sample; `values`, as long as a sample, is for what is read on the way.
  void write(const NpyArray& array, std::int64_t sample, Numbers& values, float* out) const {
    const std::int64_t width = std::ssize(values);
    array.numbers(sample * width, width, values.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t which = i / static_cast<std::size_t>(channel);
      out[i] = static_cast<float>((values[i] / scale - mean[which]) / deviation[which]);
      if (!std::isfinite(out[i]))
        array.fail("number " + std::to_string(i) + " of row " + std::to_string(sample) + " is " +
                   (std::isfinite(values[i]) ? "too large for a float" : "not finite"));
    }
  }
};

/// Arrays that a user has.
class NewArray final : public NewData {
 public:
  NewArray(NpyArray array, Shape shape, Normal normal)
      : array_(std::move(array)),
        shape_(std::move(shape)),
        normal_(std::move(normal)),
        width_(product(shape_)) {}

  Batch next(std::int64_t most) override {
    first_ = at_;
    at_ = std::min(array_.shape()[0], first_ + most);
    Batch batch;
    Shape shape = {at_ - first_};
    shape.insert(shape.end(), shape_.begin(), shape_.end());
    batch.inputs.push_back(at::empty(shape, at::kFloat));
    float* out = batch.inputs[0].mutable_data_ptr<float>();
    Numbers values(static_cast<std::size_t>(width_));
    for (std::int64_t row = first_; row < at_; ++row, out += width_) {
      normal_.write(array_, row, values, out);
      batch.indices.push_back(row);
    }
    return batch;
  }
  std::string name(std::int64_t sample) const override { return std::to_string(first_ + sample + 1); }
  std::pair<std::int64_t, std::int64_t> progress() const override { return {at_ * width_, array_.size()}; }

 private:
  NpyArray array_;
  Shape shape_;
  Normal normal_;
  std::int64_t width_, first_ = 0, at_ = 0;  ///< samples of the last batch: first_ to at_ - 1
};

class Npy final : public Dataset, public Learns, public ReadsNewData {
 public:
  struct Options {
    std::string inputs, targets;
    std::vector<std::string> arrays = {"x", "y"};
    std::string task = "auto";
    std::int64_t classes = 0;
    std::vector<std::int64_t> shape;
    double scale = 1.0;
    std::vector<double> mean, std;
    bool standardize = false;
  };
  static void describe(Manifest<Options>& m);
  explicit Npy(const Options& options) : options_(options) {}

  void open(const std::string& split) override;

  void set_taken(TakenSamples taken) override { taken_ = std::move(taken); }
  Table learned() const override;
  void use(const Table& learned) override;
  std::vector<std::int64_t> ungraded() const override { return ungraded_; }
  std::unique_ptr<NewData> read_new(const std::string& path) const override;

  std::int64_t size() const override { return inputs_->shape()[0]; }
  BatchSchema schema() const override {
    BatchSchema schema;
    schema.inputs = {{"features", shape_, at::kFloat}};
    schema.target = classifies_ ? FieldSchema{"class", {}, at::kLong}
                                : FieldSchema{"value", {target_width()}, at::kFloat};
    schema.classes = classes_;
    return schema;
  }
  Batch read(std::span<const std::int64_t> indices, const ReadContext& context) const override;
  std::vector<std::int64_t> labels() const override { return class_of_; }

 private:
  void check_options() const;
  void check_rows(const NpyArray& targets) const;
  void check_sample(const NpyArray& array) const;
  std::int64_t target_width() const { return std::ssize(value_of_) / size(); }
  void set_normal();
  void standardize(const std::vector<bool>& taken);
  void read_classes(const NpyArray& targets, const std::vector<bool>& taken);
  void read_values(const NpyArray& targets, const std::vector<bool>& taken);

  Options options_;
  TakenSamples taken_;
  std::optional<NpyArray> inputs_;
  Shape sample_, shape_;  ///< of a sample: in the files of training, and for the network
  std::optional<Normal> normal_;
  Numbers mean_, deviation_;  ///< of each channel in the training split, of standardize
  bool known_ = false;        ///< what a training split has learned was given
  bool classifies_ = false;   ///< else targets are numbers
  std::int64_t classes_ = 0;
  datasets::NumberedClasses learned_;
  std::vector<std::int64_t> class_of_, ungraded_;
  std::vector<float> value_of_;
};

void Npy::describe(Manifest<Options>& m) {
  m.name("npy").version("1.0.0").summary(
      "Arrays of samples and of their targets, as NumPy saves them: .npy and .npz.");
  m.option("inputs", &Options::inputs,
           "file: an .npy array, whose first axis counts samples, or an .npz file with two arrays, of inputs "
           "and of targets")
      .required()
      .file();
  m.option(
       "targets", &Options::targets,
       "file: an .npy array of as many classes or numbers, or rows of numbers; empty: inputs is an .npz file")
      .file();
  m.option("arrays", &Options::arrays, "of an .npz file: the names of inputs and of targets in it");
  m.option(
       "task", &Options::task,
       "auto: targets that are integers or truth values are classes, floating point is numbers to regress")
      .one_of({"auto", "classification", "regression"});
  m.option("classes", &Options::classes,
           "classes run from 0 to classes - 1; 0: up to the highest in the training split")
      .range(0, 1 << 24);
  m.option("shape", &Options::shape,
           "of a sample for the network, as in [1, 28, 28]; empty: that in the file, without the first axis")
      .range(1, 1 << 24);
  m.option("scale", &Options::scale, "values are divided by it").above(0.0);
  m.option(
      "mean", &Options::mean,
      "subtracted after that: one number, or one a channel, which is the first axis of a sample; empty: 0");
  m.option("std", &Options::std, "divided by at last: one number, or one a channel; empty: 1").above(0.0);
  m.option(
      "standardize", &Options::standardize,
      "whether mean and std are those of each channel in the training split; a constant channel becomes 0");
}

void Npy::check_options() const {
  if (options_.arrays.size() != 2)
    throw ConfigError("arrays takes two names, of inputs and of targets, as in [\"x\", \"y\"]");
  if (options_.standardize && (!options_.mean.empty() || !options_.std.empty()))
    throw ConfigError("give either standardize, or mean and std");
  if (options_.classes > 0 && options_.task == "regression")
    throw ConfigError("classes are for task = \"classification\"; this task is \"regression\"");
}

void Npy::open(const std::string& split) {
  check_options();
  inputs_ = datasets::read_array(options_.inputs, options_.arrays[0]);
  const NpyArray targets =
      datasets::read_array(options_.targets.empty() ? options_.inputs : options_.targets, options_.arrays[1]);
  if (known_)
    check_sample(*inputs_);
  else
    sample_ = sample_of(*inputs_);
  shape_ = options_.shape.empty() ? sample_ : options_.shape;
  if (product(shape_) != product(sample_))
    throw ConfigError("shape holds " + std::to_string(product(shape_)) + " numbers, a sample of " +
                      options_.inputs + " is " + shape_text(sample_) + ": " +
                      std::to_string(product(sample_)));
  check_rows(targets);
  const std::vector<bool> taken = datasets::mask_of(taken_, size());
  set_normal();
  if (!known_) {
    classifies_ = options_.task == "auto" ? options_.classes > 0 || !targets.is_floating()
                                          : options_.task == "classification";
    if (options_.standardize) standardize(taken);
  }
  if (classifies_) {
    read_classes(targets, taken);
    if (!known_) learned_.learn(class_of_, taken);
    classes_ = options_.classes > 0 ? options_.classes : learned_.count();
    ungraded_ = learned_.find_unseen(split, class_of_, taken, classes_, "row", host());
  } else {
    read_values(targets, taken);
  }
  if (!inputs_->is_floating()) return;
  Numbers values(static_cast<std::size_t>(product(shape_)));
  std::vector<float> numbers(values.size());
  for (std::int64_t row = 0; row < size(); ++row)
    if (taken[static_cast<std::size_t>(row)]) normal_->write(*inputs_, row, values, numbers.data());
}

void Npy::check_rows(const NpyArray& targets) const {
  const Shape& shape = targets.shape();
  const bool rows = !shape.empty() && shape.size() <= 2 && shape[0] == size() && targets.size() > 0;
  if (!rows)
    targets.fail("its shape is " + shape_text(shape) + ", expected [" + std::to_string(size()) + "] or [" +
                 std::to_string(size()) + ", numbers], as " + options_.inputs + " has " +
                 std::to_string(size()) + " samples");
}

void Npy::check_sample(const NpyArray& array) const {
  if (const Shape found = sample_of(array); found != sample_)
    array.fail("a sample is " + shape_text(found) + ", and the run was trained with " + shape_text(sample_));
}

void Npy::set_normal() {
  const auto channels = static_cast<std::size_t>(shape_[0]);
  const auto spread = [&](const Numbers& given, double otherwise, const char* name) {
    if (given.size() > 1 && given.size() != channels)
      throw ConfigError(std::string(name) + " has " + std::to_string(given.size()) +
                        " numbers, a sample has " + std::to_string(channels) +
                        " channels: give one number or one a channel");
    return given.size() > 1 ? given : Numbers(channels, given.empty() ? otherwise : given[0]);
  };
  normal_ = {options_.scale, spread(options_.mean, 0.0, "mean"), spread(options_.std, 1.0, "std"),
             product(shape_) / shape_[0]};
  if (!known_ || !options_.standardize) return;
  if (mean_.size() != channels || deviation_.size() != channels)
    throw ConfigError("standardize: the run has learned mean and std of " + std::to_string(mean_.size()) +
                      " channels, a sample has " + std::to_string(channels) +
                      ": shape and standardize have to be as in its training");
  normal_->mean = mean_;
  normal_->deviation = deviation_;
}

/// By Welford's running sums.
void Npy::standardize(const std::vector<bool>& taken) {
  const auto channels = static_cast<std::size_t>(shape_[0]);
  Numbers mean(channels), squares(channels), count(channels);
  Numbers values(static_cast<std::size_t>(product(shape_)));
  for (std::int64_t row = 0; row < size(); ++row) {
    if (!taken[static_cast<std::size_t>(row)]) continue;
    inputs_->numbers(row * std::ssize(values), std::ssize(values), values.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t which = i / static_cast<std::size_t>(normal_->channel);
      if (!std::isfinite(values[i]))
        inputs_->fail("number " + std::to_string(i) + " of row " + std::to_string(row) + " is not finite");
      const double value = values[i] / options_.scale, distance = value - mean[which];
      mean[which] += distance / ++count[which];
      squares[which] += distance * (value - mean[which]);
    }
  }
  for (std::size_t which = 0; which < channels; ++which) {
    const double deviation = std::sqrt(squares[which] / count[which]);
    deviation_.push_back(deviation == 0.0 ? 1.0 : deviation);
  }
  mean_ = mean;
  normal_->mean = mean_;
  normal_->deviation = deviation_;
}

/// A sample that the split does not take may have any class, and has none then.
void Npy::read_classes(const NpyArray& targets, const std::vector<bool>& taken) {
  if (targets.size() != size())
    targets.fail("its shape is " + shape_text(targets.shape()) + ": expected one class a sample, [" +
                 std::to_string(size()) + "]; set task = \"regression\" where these are numbers");
  constexpr std::int64_t most = 1 << 24;
  const std::int64_t bound = options_.classes > 0 ? options_.classes : most;
  for (std::int64_t row = 0; row < size(); ++row) {
    const double label = targets.number(row);
    const bool fits = label >= 0.0 && label < static_cast<double>(bound) && label == std::floor(label);
    if (!fits && taken[static_cast<std::size_t>(row)])
      targets.fail("the label of row " + std::to_string(row) + " is " + std::to_string(label) +
                   ", expected an integer from 0 to " + std::to_string(bound - 1) +
                   "; set task = \"regression\" where it is a number to learn");
    class_of_.push_back(fits ? static_cast<std::int64_t>(label) : most);
  }
}

void Npy::read_values(const NpyArray& targets, const std::vector<bool>& taken) {
  const std::int64_t width = targets.size() / size();
  for (std::int64_t i = 0; i < targets.size(); ++i) {
    const auto value = static_cast<float>(targets.number(i));
    const bool counts = taken[static_cast<std::size_t>(i / width)];
    if (counts && !std::isfinite(value))
      targets.fail("number " + std::to_string(i % width) + " of row " + std::to_string(i / width) +
                   " is not finite, or too large for a float");
    value_of_.push_back(counts ? value : 0.0f);
  }
}

Batch Npy::read(std::span<const std::int64_t> indices, const ReadContext&) const {
  const auto count = static_cast<std::int64_t>(indices.size());
  const std::int64_t width = product(shape_), target = classifies_ ? 1 : target_width();
  Shape shape = {count};
  shape.insert(shape.end(), shape_.begin(), shape_.end());
  Batch batch;
  batch.inputs.push_back(at::empty(shape, at::kFloat));
  batch.target = classifies_ ? at::empty({count}, at::kLong) : at::empty({count, target}, at::kFloat);
  float* out = batch.inputs[0].mutable_data_ptr<float>();
  Numbers values(static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < indices.size(); ++i, out += width) {
    normal_->write(*inputs_, indices[i], values, out);
    if (classifies_)
      batch.target.mutable_data_ptr<std::int64_t>()[i] = class_of_[static_cast<std::size_t>(indices[i])];
    else
      std::copy_n(value_of_.data() + indices[i] * target, target,
                  batch.target.mutable_data_ptr<float>() + static_cast<std::int64_t>(i) * target);
  }
  return batch;
}

std::unique_ptr<NewData> Npy::read_new(const std::string& path) const {
  if (path == "-") throw DataError("arrays cannot be read from standard input: give a file");
  NpyArray array = datasets::read_array(path, options_.arrays[0]);
  check_sample(array);
  return std::make_unique<NewArray>(std::move(array), shape_, *normal_);
}

Table Npy::learned() const {
  Table table = classifies_ ? learned_.to_table() : Table();
  table.set("format", 1);
  table.set("sample", Array(sample_.begin(), sample_.end()));
  if (options_.standardize) {
    table.set("mean", Array(mean_.begin(), mean_.end()));
    table.set("deviation", Array(deviation_.begin(), deviation_.end()));
  }
  return table;
}

void Npy::use(const Table& learned) {
  const auto list = [&]<class T>(const char* key, T) {
    std::vector<T> found;
    const Value* value = learned.find(key);
    const Array* array = value != nullptr ? value->get_if<Array>() : nullptr;
    for (const Value& each : array != nullptr ? *array : Array()) {
      if (const auto* integer = each.get_if<std::int64_t>()) found.push_back(static_cast<T>(*integer));
      if (const auto* number = each.get_if<double>()) found.push_back(static_cast<T>(*number));
    }
    return found;
  };
  known_ = true;
  classifies_ = learned.contains("classes");
  if (classifies_) learned_.use(learned);
  sample_ = list("sample", std::int64_t{});
  mean_ = list("mean", 0.0);
  deviation_ = list("deviation", 1.0);
  if (sample_.empty()) throw DataError("what was learned of the arrays is damaged: it has no `sample`");
}

}  // namespace

TRAINYARD_PLUGIN(Npy)
