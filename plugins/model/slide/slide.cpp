#include <algorithm>
#include <memory>

#include <ATen/Context.h>

#include <trainyard/context.hpp>
#include <trainyard/host.hpp>
#include <trainyard/model.hpp>
#include <trainyard/ranks.hpp>

#include "network.hpp"

namespace {

using namespace trainyard;
using namespace slide;

/// SLIDE (Chen et al., MLSys 2020; Daghaghi et al., "Accelerating SLIDE Deep Learning on Modern CPUs", MLSys
/// 2021).
class Slide final : public Model {
 public:
  struct Options {
    std::int64_t hidden = 128;
    std::string output = "sampled";
    Family hash = Family::simhash;
    int k = 9, l = 50;
    int range_pow = 0;
    Policy bucket = Policy::reservoir;
    std::int64_t bucket_size = 128;
    Query query = Query::vanilla;
    std::int64_t active = 1000, threshold = 2, min_active = 1000;
    Rehash rehash;
    std::string mode = "deterministic", precision = "fp32";
  };
  static void describe(Manifest<Options>& m) {
    m.name("slide").version("1.0.0").summary(
        "Sparse features to very many classes; training computes the logits that hash tables find.");
    m.needs("fp32").needs("sparse_rows").needs("run.device = cpu").needs("one rank where precision = bf16");
    m.needs("run.deterministic = off where mode = hogwild");
    m.option("hidden", &Options::hidden, "width of the hidden layer").range(1, 1 << 16);
    m.option("output", &Options::output,
             "logits of a training pass: of the active classes (sampled), or of all of them (full)")
        .one_of({"sampled", "full"});
    m.option("hash", &Options::hash, "family of hash functions; random: the active classes are drawn");
    m.option("k", &Options::k, "codes that make up the key of a table").range(1, 32);
    m.option("l", &Options::l, "tables").range(1, 4096);
    m.option("range_pow", &Options::range_pow,
             "a table has 2^range_pow buckets; 0: one for each way that k codes can turn out")
        .range(0, 24);
    m.option("bucket", &Options::bucket,
             "what a full bucket holds: a sample of all (reservoir), or the last ones (fifo)");
    m.option("bucket_size", &Options::bucket_size, "classes that a bucket holds at most").range(1, 1 << 24);
    m.option(
        "query", &Options::query,
        "table after table until there are enough (vanilla), what most tables have (topk), what `threshold` "
        "tables have (threshold)");
    m.option("active", &Options::active, "classes of a sample at most, labels included").min(1);
    m.option("threshold", &Options::threshold, "tables that a class must be found in").range(1, 4096);
    m.option("min_active", &Options::min_active, "classes of a sample at least: the rest is drawn").min(0);
    m.option("rehash", &Options::rehash, "when the tables are made again");
    m.option("mode", &Options::mode,
             "how threads sum up gradients: in the order of the samples, or all at once without locks")
        .one_of({"deterministic", "hogwild"});
    m.option("precision", &Options::precision,
             "what training reads of the output layer's weights: all bits (fp32), or the upper 16 (bf16)")
        .one_of({"fp32", "bf16"});
    m.hook<&Slide::report>(Event::batch_end);
  }
  explicit Slide(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    NetworkShape shape{.features = find_sparse_rows(context.schema),
                       .hidden = options_.hidden,
                       .classes = context.schema.classes,
                       .sampled = options_.output == "sampled",
                       .hash = hash_shape(),
                       .bucket_size = options_.bucket_size,
                       .bucket = options_.bucket,
                       .active = {.query = options_.query,
                                  .active = options_.active,
                                  .threshold = options_.threshold,
                                  .min_active = options_.min_active},
                       .rehash = options_.rehash,
                       .sums = options_.mode == "hogwild" ? Sums::hogwild : Sums::ordered,
                       .halves = options_.precision == "bf16"};
    if (shape.classes <= 0)
      throw ConfigError(
          "the model gives a logit a class, but the data has no classes: use a dataset such as xc");
    if (shape.classes > std::int64_t{1} << 31)
      throw ConfigError("the data has " + std::to_string(shape.classes) +
                        " classes, the model takes at most 2^31");
    if (options_.min_active > options_.active)
      throw ConfigError("model.min_active is " + std::to_string(options_.min_active) +
                        ", which is more than model.active = " + std::to_string(options_.active));
    if (shape.sums == Sums::hogwild) require_any_bits();
    if (shape.halves) require_halves();
    return std::make_unique<SlideNetwork>(shape, context.seed);
  }

  /// How much of what is active comes from the tables: the rest is labels and random.
  void report(StepContext& context) {
    auto* const network = dynamic_cast<SlideNetwork*>(&context.network());
    if (network == nullptr) return;
    const Activity activity = network->take_activity();
    if (activity.samples == 0) return;
    const auto samples = static_cast<double>(activity.samples);
    host().metric("slide/active", static_cast<double>(activity.active) / samples);
    host().metric("slide/retrieved", static_cast<double>(activity.retrieved) / samples);
  }

 private:
  static void require_any_bits() {
    if (at::globalContext().deterministicAlgorithms())
      throw ConfigError(
          "model.mode = \"hogwild\" gives other bits in each run, and run.deterministic asks for the same: "
          "set model.mode to \"deterministic\", or run.deterministic to \"off\"");
  }

  void require_halves() const {
    if (options_.output == "full")
      throw ConfigError(
          "model.precision = \"bf16\" is for the rows that sampling reads, and model.output is \"full\": set "
          "precision to \"fp32\", and trainer.precision for products of lower precision");
    if (host().run().ranks != nullptr)
      throw ConfigError("model.precision = \"bf16\" is for a run of one rank, and this one has " +
                        std::to_string(host().run().ranks->size()) + ": set it to \"fp32\"");
  }

  HashShape hash_shape() const {
    HashShape shape{.family = options_.hash, .width = options_.hidden, .k = options_.k, .l = options_.l};
    const bool of_bins = shape.family == Family::wta || shape.family == Family::dwta;
    if (of_bins && shape.width < 8)
      throw ConfigError(
          "model.hidden is " + std::to_string(shape.width) +
          ", and model.hash = \"wta\" and \"dwta\" look at 8 coordinates at a time: set it to 8 or more");
    const int bits = code_bits(shape.family) * shape.k;
    if (options_.range_pow == 0 && bits > 24)
      throw ConfigError("model.k = " + std::to_string(shape.k) + " codes of " +
                        std::to_string(code_bits(shape.family)) + " bits are a key of " +
                        std::to_string(bits) +
                        " bits: set model.range_pow to at most 24, or a smaller model.k");
    shape.key_bits = options_.range_pow > 0 ? options_.range_pow : std::max(bits, 1);
    return shape;
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Slide)
