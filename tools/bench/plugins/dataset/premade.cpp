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
    std::int64_t features = 64;
    std::int64_t classes = 10;
  };
  static void describe(Manifest<Options>& m) {
    m.name("premade").version("1.0.0").summary("Random batches that are kept; for benchmarks.");
    m.option("batches", &Options::batches, "how many there are").min(1);
    m.option("samples", &Options::samples, "of a batch: batch_size of [data.train]").min(1);
    m.option("features", &Options::features, "of a sample").min(1);
    m.option("classes", &Options::classes, "of the target").min(2);
  }
  explicit Premade(const Options& options) : options_(options) {}

  void open(const std::string&) override {
    const at::Generator random = at::detail::createCPUGenerator(17);  // the same in every run
    for (std::int64_t i = 0; i < options_.batches; ++i) {
      Batch& batch = batches_.emplace_back();
      batch.inputs.push_back(at::rand({options_.samples, options_.features}, random));
      batch.target = at::randint(options_.classes, {options_.samples}, random, at::kLong);
    }
  }
  std::int64_t size() const override { return options_.batches * options_.samples; }
  BatchSchema schema() const override {
    BatchSchema schema;
    schema.inputs = {{"features", {options_.features}, at::kFloat}};
    schema.target = {"class", {}, at::kLong};
    schema.classes = options_.classes;
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
