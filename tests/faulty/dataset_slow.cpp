// Data for which a run has to wait: when it is opened, or for a batch.
#include <ATen/ops/empty.h>

#include <trainyard/dataset.hpp>

#include "slow.hpp"

namespace {

using namespace trainyard;

/// 64 samples of 8 numbers and one of 3 classes.
class Slow final : public Dataset {
 public:
  struct Options {
    std::string at = "nowhere";
    std::int64_t first = 32;
    double seconds = 0.3;
    std::string sign = "slow";
  };
  static void describe(Manifest<Options>& m) {
    m.name("slow").version("1.0.0").summary("Sleeps once, while it is opened or read.");
    m.option("at", &Options::at, "what takes long").one_of({"nowhere", "open", "read"});
    m.option("first", &Options::first, "position of the batch that is read slowly");
    m.option("seconds", &Options::seconds, "how long").min(0.0);
    m.option("sign", &Options::sign, "file that tells that it sleeps");
  }
  explicit Slow(const Options& options) : options_(options) {}

  void open(const std::string& split) override {
    if (options_.at == "open") nap_.take(options_.seconds, options_.sign);
    samples_.emplace(7, "slow/" + split);
  }
  std::int64_t size() const override { return 64; }
  BatchSchema schema() const override {
    BatchSchema schema;
    schema.inputs.push_back({.name = "x", .shape = {width}});
    schema.classes = 3;
    return schema;
  }
  Batch read(std::span<const std::int64_t> indices, const ReadContext& context) const override {
    if (options_.at == "read" && context.position >= options_.first)
      nap_.take(options_.seconds, options_.sign);
    const auto count = static_cast<std::int64_t>(indices.size());
    Batch batch;
    batch.inputs = {at::empty({count, width})};
    batch.target = at::empty({count}, at::kLong);
    float* x = batch.inputs[0].mutable_data_ptr<float>();
    std::int64_t* target = batch.target.mutable_data_ptr<std::int64_t>();
    for (const std::int64_t index : indices) {
      *target = index % 3;
      for (std::int64_t i = 0; i < width; ++i) {
        const double drawn = samples_->uniform(static_cast<std::uint64_t>(index * width + i));
        *x++ = static_cast<float>(drawn + (i == *target ? 0.5 : 0.0));
      }
      ++target;
    }
    return batch;
  }

 private:
  static constexpr std::int64_t width = 8;
  Options options_;
  std::optional<RandomStream> samples_;
  faulty::Nap nap_;
};

}  // namespace

TRAINYARD_PLUGIN(Slow)
