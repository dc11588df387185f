#include <ATen/ops/tensor.h>
#include <trainyard/dataset.hpp>

class MyPlugin final : public trainyard::Dataset {
 public:
  struct Options {
    std::int64_t size = 1024;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("Points on a board of 2 x 2 fields: dark or light.");
    m.option("size", &Options::size, "samples").min(1);
  }
  explicit MyPlugin(const Options& options) : options_(options) {}
  void open(const std::string& split) override { random_ = {0, "my_plugin/" + split}; }
  std::int64_t size() const override { return options_.size; }
  trainyard::BatchSchema schema() const override {
    return {.inputs = {{"point", {2}}}, .target = {"dark", {}, at::kLong}, .classes = 2};
  }
  trainyard::Batch read(std::span<const std::int64_t> indices, const trainyard::ReadContext&) const override {
    std::vector<double> xy;
    for (const auto i : indices) xy.insert(xy.end(), {random_.uniform(2 * i), random_.uniform(2 * i + 1)});
    const at::Tensor points = at::tensor(xy, at::kFloat).view({-1, 2});
    return {{points}, points.mul(2).floor().sum(1).remainder(2).to(at::kLong), {}};
  }

 private:
  Options options_;
  trainyard::RandomStream random_{0, "my_plugin"};
};
TRAINYARD_PLUGIN(MyPlugin)
