// Extreme classification: samples of few features out of very many, with a few labels out of very many.
#include <limits>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <trainyard/dataset.hpp>

#include <trainyard/helpers/labels.hpp>
#include <trainyard/helpers/sparse_rows.hpp>

#include "samples.hpp"
#include "synthetic.hpp"
#include "text.hpp"

namespace {

using namespace trainyard;

class Xc final : public Dataset {
 public:
  struct Options {
    std::string layout = "text";
    std::string path;
    std::string normalise = "none";
    std::int64_t most_labels = 0;
    std::int64_t skip = 0;
    std::int64_t limit = 0;
    std::int64_t size = 1024;
    std::int64_t seed = 0;
    std::int64_t features = 50000;
    std::int64_t classes = 30000;
    std::int64_t prototype = 30;
    std::int64_t own = 14;
    std::int64_t noise = 14;
    double exponent = 0.7;
    double shift = 20.0;
  };
  static void describe(Manifest<Options>& m) {
    constexpr double most = std::numeric_limits<std::int32_t>::max();
    m.name("xc").version("1.0.0").summary(
        "Extreme classification: few features and labels of very many, from a file or made up.");
    m.provides("free_rows");
    m.option("layout", &Options::layout,
             "text: a file of the Extreme Classification Repository, plain or .gz; synthetic: seeded made-up "
             "samples of one label, whose class has a prototype")
        .one_of({"text", "synthetic"});
    m.option("path", &Options::path, "of text: the file; its first line names samples, features and labels")
        .file();
    m.option("normalise", &Options::normalise, "l2: each sample to length 1").one_of({"none", "l2"});
    m.option(
         "most_labels", &Options::most_labels,
         "labels a sample may have, the width of the target; more are refused; 0: as many as one of them has")
        .range(0, most);
    m.option("skip", &Options::skip, "of text: samples to leave out at the beginning of the file").min(0);
    m.option("limit", &Options::limit, "of text: samples to take after these; 0: all").min(0);
    m.option("size", &Options::size, "of synthetic: samples; every split draws its own").range(1, most);
    m.option("seed", &Options::seed, "of synthetic: of the data, whatever the seed of the run").min(0);
    m.option("features", &Options::features, "of synthetic").range(1, most);
    m.option("classes", &Options::classes, "of synthetic").range(1, 1 << 28);
    m.option("prototype", &Options::prototype, "of synthetic: features of a class").range(1, 1 << 12);
    m.option("own", &Options::own, "of synthetic: features of a sample that are its class's")
        .range(0, 1 << 12);
    m.option("noise", &Options::noise, "of synthetic: features of a sample that are any others")
        .range(0, 1 << 12);
    m.option("exponent", &Options::exponent,
             "of synthetic: class k has a share proportional to (k + shift)^-exponent")
        .range(0.0, 10.0);
    m.option("shift", &Options::shift, "of synthetic: see exponent").range(1.0, 1e9);
  }
  explicit Xc(const Options& options) : options_(options) {}

  void open(const std::string& split) override {
    if (options_.layout == "synthetic")
      make(split);
    else
      read_file();
    if (options_.normalise == "l2") samples_.normalise();
    width_ = std::max(options_.most_labels, std::int64_t{1});
    for (std::int64_t i = 0; i < samples_.size(); ++i) width_ = std::max(width_, samples_.labels_of(i));
  }

  std::int64_t size() const override { return samples_.size(); }

  BatchSchema schema() const override {
    BatchSchema schema;
    schema.inputs = sparse_row_fields(samples_.features);
    schema.target = labels_field(width_);
    schema.classes = samples_.classes;
    return schema;
  }

  Batch read(std::span<const std::int64_t> indices, const ReadContext&) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    std::int64_t entries = 0;
    for (const std::int64_t sample : indices) entries += samples_.entries_of(sample);
    Batch batch;
    batch.inputs = {at::empty({entries}, at::kLong), at::empty({entries}, at::kFloat),
                    at::empty({count + 1}, at::kLong)};
    batch.target = at::full({count, width_}, no_label, at::kLong);
    auto* index = batch.inputs[0].mutable_data_ptr<std::int64_t>();
    auto* value = batch.inputs[1].mutable_data_ptr<float>();
    auto* offset = batch.inputs[2].mutable_data_ptr<std::int64_t>();
    auto* label = batch.target.mutable_data_ptr<std::int64_t>();
    *offset = 0;
    for (const std::int64_t sample : indices) {
      const std::int64_t from = samples_.entries_end[static_cast<std::size_t>(sample)];
      const std::int64_t length = samples_.entries_of(sample);
      index = std::copy_n(samples_.index.data() + from, length, index);
      value = std::copy_n(samples_.value.data() + from, length, value);
      offset[1] = offset[0] + length;
      ++offset;
      std::copy_n(samples_.label.data() + samples_.labels_end[static_cast<std::size_t>(sample)],
                  samples_.labels_of(sample), label);
      label += width_;
    }
    return batch;
  }

 private:
  void make(const std::string& split) {
    if (!options_.path.empty() || options_.skip > 0 || options_.limit > 0)
      throw ConfigError("path, skip and limit are of layout = \"text\": drop them, or that layout");
    samples_ = xc::make_samples({.size = options_.size,
                                 .seed = options_.seed,
                                 .features = options_.features,
                                 .classes = options_.classes,
                                 .prototype = options_.prototype,
                                 .own = options_.own,
                                 .noise = options_.noise,
                                 .exponent = options_.exponent,
                                 .shift = options_.shift},
                                split);
  }

  void read_file() {
    if (options_.path.empty())
      throw ConfigError("layout = \"text\" needs a path: name a file, or take layout = \"synthetic\"");
    datasets::XcText text(options_.path);
    if (text.features() == 0 || text.classes() == 0)
      throw DataError(options_.path + ":1: the file has no " +
                      (text.features() == 0 ? "features" : "labels") + " to learn from");
    samples_.features = text.features();
    samples_.classes = text.classes();
    for (std::int64_t sample = 0; text.next(); ++sample) {
      if (sample < options_.skip) continue;
      add(text);
      if (samples_.size() == options_.limit) break;
    }
    if (samples_.size() == 0)
      throw DataError(options_.path + ": skip = " + std::to_string(options_.skip) + " leaves none of its " +
                      std::to_string(text.samples()) + " samples");
  }

  void add(datasets::XcText& text) {
    const auto labels = static_cast<std::int64_t>(text.labels().size());
    if (options_.most_labels > 0 && labels > options_.most_labels)
      text.fail("the sample has " + std::to_string(labels) +
                " labels, more than most_labels = " + std::to_string(options_.most_labels) + ": raise it");
    for (const auto& [feature, value] : text.entries()) {
      samples_.index.push_back(feature);
      samples_.value.push_back(value);
    }
    samples_.label.insert(samples_.label.end(), text.labels().begin(), text.labels().end());
    samples_.end_sample();
  }

  Options options_;
  xc::Samples samples_;
  std::int64_t width_ = 1;  ///< of the target
};

}  // namespace

TRAINYARD_PLUGIN(Xc)
