// The weights of a run as other programs read them: parameters and buffers by name.
//   safetensors  the format of https://github.com/huggingface/safetensors
//   torch        what Python's torch.load(weights_only=True) reads: a dictionary of tensors
//   onnx         the network with them
//   static       the network with them as C++ source without a library, in a folder
#include <memory>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>

#include <trainyard/formats/safetensors.hpp>
#include <trainyard/mixins/halves.hpp>
#include <trainyard/network.hpp>
#include <trainyard/tool.hpp>

#include "constants.hpp"
#include "onnx_file.hpp"
#include "static_source.hpp"
#include "torch_file.hpp"

namespace {

using namespace trainyard;

using Tensors = std::vector<NamedTensor>;

void as_safetensors(const std::string& path, const Tensors& tensors, Workshop&, bool) {
  write_safetensors(path, tensors);
}

void as_torch(const std::string& path, const Tensors& tensors, Workshop&, bool) {
  write_torch(path, tensors);
}

/// A dropout may evaluate linear layers in its own way, of which the graph knows nothing; a twin has none.
void require_plain_evaluations(Workshop& shop, const std::string& format) {
  const at::NoGradGuard no_grad;
  const std::unique_ptr<Network> plain = shop.network().twin();
  for (const Batch& batch : shop.batches("train", 1))
    if (!at::equal(shop.network().forward(batch, {}), plain->forward(batch, {})))
      throw ConfigError(
          "to = \"" + format +
          "\": [model.dropout] evaluates layers in its own way, which a file of the network does "
          "not hold: "
          "choose another option of it, or leave it out by --set model.dropout.p=0");
}

/// `what` asks for it: an option and its value.
const Graph& graph_of(Workshop& shop, const std::string& what) {
  const Graph* const graph = shop.network().graph();
  if (graph == nullptr)
    throw ConfigError(what +
                      ": this model has no graph of operators, which such a file is made of: leave it out, "
                      "or choose another format");
  return *graph;
}

/// That of a network which a file of the graph evaluates as the run does.
const Graph& plain_graph(Workshop& shop, const std::string& format) {
  const Graph& graph = graph_of(shop, "to = \"" + format + "\"");
  require_plain_evaluations(shop, format);
  return graph;
}

void as_onnx(const std::string& path, const Tensors& tensors, Workshop& shop, bool external) {
  write_onnx(path, plain_graph(shop, "onnx"), tensors, {shop.source(), external});
}

void as_static(const std::string& path, const Tensors& tensors, Workshop& shop, bool) {
  write_static(path, plain_graph(shop, "static"), tensors, shop.source());
}

struct Format {
  const char *name, *extension;
  void (*write)(const std::string& path, const Tensors& tensors, Workshop& shop, bool external);
};
constexpr Format formats[] = {
    {"onnx", ".onnx", as_onnx},
    {"safetensors", ".safetensors", as_safetensors},
    {"static", ".static", as_static},
    {"torch", ".pt", as_torch},
};

class Export final : public Tool {
 public:
  struct Options {
    std::string to = "safetensors";
    std::string weights_of;
    bool external = false;
    bool materialize = false;
    std::string file;
  };
  static void describe(Manifest<Options>& m) {
    m.name("export").version("1.0.0").summary("Writes the weights of a run for other programs.");
    m.option("to", &Options::to, "format of the file").one_of({"onnx", "safetensors", "static", "torch"});
    m.option(
        "weights_of", &Options::weights_of,
        "a hook that averages weights, by its id (ema, swa), whose average is written; empty: the weights as "
        "trained");
    m.option("external", &Options::external,
             "onnx: weights in a file beside it, as those of 2 GB and more always are");
    m.option(
        "materialize", &Options::materialize,
        "safetensors, torch: weights that the network computes of others, as the sums of a transform, are "
        "written themselves, so that a run without the transform begins with them");
    m.option("file", &Options::file,
             "where to, of static a folder; empty: weights, in the tool's folder below the run");
  }
  explicit Export(const Options& options) : options_(options) {}

  Report run(Workshop& shop) override {
    const Format& format = chosen();
    if (options_.external && options_.to != "onnx")
      throw ConfigError("external is of to = \"onnx\"; " + options_.to + " has one file");
    if (options_.materialize && (options_.to == "onnx" || options_.to == "static"))
      throw ConfigError("materialize is of to = \"safetensors\" and \"torch\"; " + options_.to +
                        " holds what the network computes as it is");
    const std::string path =
        options_.file.empty() ? shop.folder() + "/weights" + format.extension : options_.file;
    std::vector<NamedTensor> tensors = shop.weights();
    join_halves(shop.network(), tensors);
    std::int64_t replaced = 0;
    if (!options_.weights_of.empty()) replaced = put_averages(shop, tensors);
    if (options_.materialize) tensors = materialized(graph_of(shop, "materialize"), tensors);
    std::int64_t numbers = 0;
    for (auto& [name, tensor] : tensors) {
      tensor = tensor.detach().to(at::kCPU).contiguous().clone();  // nothing of what it is a view of
      numbers += tensor.numel();
    }
    if (shop.stopping()) return {};
    format.write(path, tensors, shop, options_.external);
    Report report;
    report.facts = {{"file", path},
                    {"format", format.name},
                    {"from", shop.source()},
                    {"tensors", static_cast<std::int64_t>(tensors.size())},
                    {"numbers", numbers}};
    if (!options_.weights_of.empty()) report.facts.emplace_back("averaged", replaced);
    return report;
  }

 private:
  const Format& chosen() const {
    for (const Format& format : formats)
      if (options_.to == format.name) return format;
    throw ConfigError("there is no format " + options_.to);
  }

  /// Others know of no weights in two parts.
  static void join_halves(Network& network, std::vector<NamedTensor>& tensors) {
    const auto* const holder = dynamic_cast<const HoldsHalves*>(&network);
    if (holder == nullptr) return;
    for (const Halves& half : holder->halves()) {
      std::erase_if(tensors, [&](const NamedTensor& each) { return each.tensor.is_alias_of(half.lower); });
      for (auto& [name, tensor] : tensors)
        if (name == half.name) tensor = joined(half);
    }
  }

  /// In the place of weights, where the hook has one; a buffer that it does not average stays.
  std::int64_t put_averages(Workshop& shop, std::vector<NamedTensor>& tensors) const {
    const State* const hook = shop.state("hooks." + options_.weights_of);
    std::int64_t replaced = 0;
    for (auto& [name, tensor] : tensors) {
      if (hook == nullptr) break;
      const auto found = hook->tensors.find("average/" + name);
      if (found == hook->tensors.end()) continue;
      tensor = found->second;
      ++replaced;
    }
    if (replaced == 0)
      throw ConfigError(
          "weights_of = \"" + options_.weights_of + "\": " + shop.source() +
          " holds no average of such a hook; have [[hooks]] ema or swa average in the training, or leave "
          "it out");
    return replaced;
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Export)
