// What the network gives for the samples of a split, in a file: to compare with other programs, to look at the
// samples that it has wrong, to put several networks together.
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <trainyard/formats/safetensors.hpp>
#include <trainyard/forward_context.hpp>
#include <trainyard/network.hpp>
#include <trainyard/tool.hpp>

namespace {

using namespace trainyard;

class Predict final : public Tool {
 public:
  struct Options {
    std::string split = "val";
    std::int64_t batches = 0;
    bool inputs = false;
    std::string file;
  };
  static void describe(Manifest<Options>& m) {
    m.name("predict").version("1.0.0").summary(
        "Writes the outputs of the network for the samples of a split.");
    m.option("split", &Options::split, "of the run's data: val, test or train");
    m.option("batches", &Options::batches, "how many, from the first on; 0: all. They are held in memory")
        .min(0);
    m.option("inputs", &Options::inputs, "whether the inputs are written, too");
    m.option("file", &Options::file,
             "where to; empty: outputs.safetensors, in the tool's folder below the run");
  }
  explicit Predict(const Options& options) : options_(options) {}

  Report run(Workshop& shop) override {
    const std::string path = options_.file.empty() ? shop.folder() + "/outputs.safetensors" : options_.file;
    const std::int64_t most = options_.batches == 0 ? INT64_MAX : options_.batches;
    const std::vector<Batch> batches = shop.batches(options_.split, most);
    std::vector<at::Tensor> outputs, targets, indices;
    std::vector<std::vector<at::Tensor>> inputs;
    const at::NoGradGuard no_grad;
    for (const Batch& batch : batches) {
      if (shop.stopping()) return {};
      outputs.push_back(shop.network().forward(batch, {}).to(at::kCPU));
      indices.push_back(at::tensor(batch.indices, at::kLong));
      if (batch.target.defined()) targets.push_back(batch.target.to(at::kCPU));
      inputs.resize(batch.inputs.size());
      for (std::size_t i = 0; i < batch.inputs.size() && options_.inputs; ++i)
        inputs[i].push_back(batch.inputs[i].to(at::kCPU));
      shop.progress(static_cast<std::int64_t>(outputs.size()), static_cast<std::int64_t>(batches.size()));
    }
    if (outputs.empty()) throw ConfigError("split \"" + options_.split + "\" has no batch");
    std::vector<NamedTensor> tensors = {{"output", at::cat(outputs)}, {"index", at::cat(indices)}};
    if (!targets.empty()) tensors.push_back({"target", at::cat(targets)});
    for (std::size_t i = 0; i < inputs.size() && options_.inputs; ++i)
      tensors.push_back({"input/" + std::to_string(i), at::cat(inputs[i])});
    for (NamedTensor& each : tensors) each.tensor = each.tensor.contiguous();
    write_safetensors(path, tensors);
    Report report;
    report.facts = {{"file", path},
                    {"from", shop.source()},
                    {"split", options_.split},
                    {"samples", tensors[1].tensor.numel()}};
    return report;
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Predict)
