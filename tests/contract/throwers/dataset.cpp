#include <ATen/ops/zeros.h>

#include <trainyard/dataset.hpp>

#include "thrower.hpp"

class DatasetThrower final : public trainyard::Dataset {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) {
    describe_thrower(m, {"open", "size", "schema", "labels"}, {"read"});
  }
  explicit DatasetThrower(const Options& options) : options_(options) {}
  void open(const std::string&) override { options_.at("open"); }
  std::int64_t size() const override {
    options_.at("size");
    return 16;
  }
  trainyard::BatchSchema schema() const override {
    options_.at("schema");
    return {.inputs = {{"x", {16}, at::kFloat}}, .target = {"y", {}, at::kLong}, .classes = 10};
  }
  trainyard::Batch read(std::span<const std::int64_t> indices, const trainyard::ReadContext&) const override {
    options_.at("read");
    const auto count = static_cast<std::int64_t>(indices.size());
    trainyard::Batch batch;
    batch.inputs = {at::zeros({count, 16})};
    batch.target = at::zeros({count}, at::kLong);
    return batch;
  }
  std::vector<std::int64_t> labels() const override {
    options_.at("labels");
    return {};
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(DatasetThrower)
