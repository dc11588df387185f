// Goes wrong while a batch is read, on whichever thread that is.
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include <trainyard/dataset.hpp>

#include "fault.hpp"

namespace {

using namespace trainyard;

class Faulty final : public Dataset {
 public:
  struct Options {
    std::string way = "nothing";
    std::int64_t first = 32;
  };
  static void describe(Manifest<Options>& m) {
    m.name("faulty").version("1.0.0").summary("Goes wrong while it reads.");
    m.option("way", &Options::way, "how it goes wrong").one_of(faulty::ways);
    m.option("first", &Options::first, "position of the batch at which it does");
  }
  explicit Faulty(const Options& options) : options_(options) {}
  void open(const std::string&) override {}
  std::int64_t size() const override { return 64; }
  BatchSchema schema() const override {
    BatchSchema schema;
    schema.inputs.push_back({.name = "x", .shape = {8}});
    schema.classes = 3;
    return schema;
  }
  Batch read(std::span<const std::int64_t> indices, const ReadContext& context) const override {
    if (context.position >= options_.first) faulty::go_wrong(options_.way);
    const auto count = static_cast<std::int64_t>(indices.size());
    Batch batch;
    batch.inputs = {at::zeros({count, 8})};
    batch.target = at::zeros({count}, at::kLong);
    return batch;
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Faulty)
