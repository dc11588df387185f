// Batches that were made before the training: the cost of reading data is nobody's.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>

#include <trainyard/dataset.hpp>

namespace {

using namespace trainyard;

class Premade final : public Dataset {
 public:
  struct Options {
    std::int64_t batches = 64;
    std::int64_t samples = 64;
    std::vector<std::int64_t> shape = {64};
    std::int64_t classes = 10;
    bool tokens = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("premade").version("1.0.0").summary("Random batches that are kept; for benchmarks.");
    m.option("batches", &Options::batches, "how many there are").min(1);
    m.option("samples", &Options::samples, "of a batch: batch_size of [data.train]").min(1);
    m.option("shape", &Options::shape, "of a sample").min(1);
    m.option("classes", &Options::classes, "of the target").min(2);
    m.option("tokens", &Options::tokens, "samples are rows of class numbers, and each of them has a target");
  }
  explicit Premade(const Options& options) : options_(options) {}

  void open(const std::string&) override {
    const at::Generator random = at::detail::createCPUGenerator(17);  // the same in every run
    for (std::int64_t i = 0; i < options_.batches; ++i) {
      Batch& batch = batches_.emplace_back();
      std::vector<std::int64_t> shape = options_.shape;
      shape.insert(shape.begin(), options_.samples);
      const auto classes = [&](const std::vector<std::int64_t>& of) {
        return at::randint(options_.classes, of, random, at::kLong);
      };
      batch.inputs.push_back(options_.tokens ? classes(shape) : at::rand(shape, random));
      batch.target = classes(options_.tokens ? shape : std::vector{options_.samples});
    }
  }
  std::int64_t size() const override { return options_.batches * options_.samples; }
  BatchSchema schema() const override {
    BatchSchema schema;
    schema.inputs = {{"features", options_.shape, options_.tokens ? at::kLong : at::kFloat}};
    schema.target = {"class", options_.tokens ? options_.shape : std::vector<std::int64_t>(), at::kLong};
    schema.classes = options_.classes;
    if (!options_.tokens) return schema;
    schema.vocabulary = options_.classes;
    schema.tokens_per_sample = options_.shape.front();
    return schema;
  }
  Batch read(std::span<const std::int64_t> indices, const ReadContext&) const override {
    return batches_[static_cast<std::size_t>(indices.front() / options_.samples)];
  }

 private:
  Options options_;
  std::vector<Batch> batches_;
};

}  // namespace

TRAINYARD_PLUGIN(Premade)
