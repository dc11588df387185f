// Extreme classification: samples of few features out of very many, with a few labels out of very many.
#include <limits>
#include <sstream>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <trainyard/dataset.hpp>

#include <trainyard/helpers/labels.hpp>
#include <trainyard/helpers/sparse_rows.hpp>
#include <trainyard/keeps_data.hpp>

#include "kept.hpp"
#include "samples.hpp"
#include "synthetic.hpp"
#include "text.hpp"

namespace {

using namespace trainyard;

class Xc final : public Dataset, public KeepsData, public KeepsFolders {
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
    std::string keep_in;
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
    m.option("keep_in", &Options::keep_in,
             "folder to keep the samples in as they lie in memory, for runs to come: they map them, and "
             "those of a "
             "machine share them")
        .file();
  }
  explicit Xc(const Options& options) : options_(options) {}

  void open(const std::string& split) override {
    datasets::check_keep_in(options_.keep_in);
    samples_ = find(split);
    width_ = std::max(options_.most_labels, std::int64_t{1});
    for (std::int64_t i = 0; i < samples_.size(); ++i) width_ = std::max(width_, samples_.labels_of(i));
  }

  std::vector<std::string> kept_folders() const override { return {"keep_in"}; }
  KeptFacts keep(const std::string& split, const KeptProgress& progress) override {
    return datasets::kept_by(options_.keep_in, options_.path, progress, [&] {
      const std::string file = xc::kept_samples(options_.keep_in, name(split)).path();
      const bool there = std::filesystem::exists(file);
      open(split);
      return KeptFacts{file, !there};
    });
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
  /// Of what the samples are a function.
  std::string name(const std::string& split) const {
    const Options& o = options_;
    std::ostringstream out;
    out.precision(17);
    out << o.layout << ' ' << o.normalise << ' ' << o.most_labels << ' ' << o.skip << ' ' << o.limit << '\n';
    if (o.layout == "synthetic")
      out << split << ' ' << o.size << ' ' << o.seed << ' ' << o.features << ' ' << o.classes << ' '
          << o.prototype << ' ' << o.own << ' ' << o.noise << ' ' << o.exponent << ' ' << o.shift;
    else
      datasets::add_files(o.path, out);
    return out.str();
  }

  /// From the folder that keeps them, where they are there.
  xc::Samples find(const std::string& split) const {
    if (options_.keep_in.empty()) return prepared(split);
    const datasets::KeptFile file = xc::kept_samples(options_.keep_in, name(split));
    if (std::optional<xc::Samples> kept = xc::map_kept(file)) return std::move(*kept);
    xc::Samples samples = prepared(split);
    xc::keep(file, samples);
    return samples;
  }

  xc::Samples prepared(const std::string& split) const {
    xc::NewSamples samples = options_.layout == "synthetic" ? made(split) : read_file();
    if (options_.normalise == "l2") samples.normalise();
    return xc::NewSamples::done(std::move(samples));
  }

  xc::NewSamples made(const std::string& split) const {
    if (!options_.path.empty() || options_.skip > 0 || options_.limit > 0)
      throw ConfigError("path, skip and limit are of layout = \"text\": drop them, or that layout");
    return xc::make_samples({.size = options_.size,
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

  xc::NewSamples read_file() const {
    if (options_.path.empty())
      throw ConfigError("layout = \"text\" needs a path: name a file, or take layout = \"synthetic\"");
    datasets::XcText text(options_.path);
    if (text.features() == 0 || text.classes() == 0)
      throw DataError(options_.path + ":1: the file has no " +
                      (text.features() == 0 ? "features" : "labels") + " to learn from");
    xc::NewSamples samples{.features = text.features(), .classes = text.classes()};
    for (std::int64_t sample = 0; text.next(); ++sample) {
      if (sample < options_.skip) continue;
      add(text, samples);
      if (samples.size() == options_.limit) break;
    }
    if (samples.size() == 0)
      throw DataError(options_.path + ": skip = " + std::to_string(options_.skip) + " leaves none of its " +
                      std::to_string(text.samples()) + " samples");
    return samples;
  }

  void add(datasets::XcText& text, xc::NewSamples& samples) const {
    const auto labels = static_cast<std::int64_t>(text.labels().size());
    if (options_.most_labels > 0 && labels > options_.most_labels)
      text.fail("the sample has " + std::to_string(labels) +
                " labels, more than most_labels = " + std::to_string(options_.most_labels) + ": raise it");
    for (const auto& [feature, value] : text.entries()) {
      samples.index.push_back(feature);
      samples.value.push_back(value);
    }
    samples.label.insert(samples.label.end(), text.labels().begin(), text.labels().end());
    samples.end_sample();
  }

  Options options_;
  xc::Samples samples_;
  std::int64_t width_ = 1;  ///< of the target
};

}  // namespace

TRAINYARD_PLUGIN(Xc)
