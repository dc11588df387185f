// Weights that others have trained, under our names, and back: by a map (maps/*.toml), to the last tensor.
#include <trainyard/formats/safetensors.hpp>
#include <trainyard/tool.hpp>

#include "files.hpp"
#include "map.hpp"
#include "settings.hpp"
#include "translate.hpp"

namespace {

using namespace trainyard;

class Convert final : public Tool {
 public:
  struct Options {
    std::string map;
    std::string from;
    std::string file;
  };
  static void describe(Manifest<Options>& m) {
    m.name("convert").version("1.0.0").summary(
        "Makes weights for the run's model of a safetensors file that others wrote, or such a file of its.");
    m.option("map", &Options::map,
             "names of the file and ours: gpt2, llama, vit, vit_torchvision, resnet, or a file of your own, "
             "NAME.toml; left out: the one that fits the model");
    m.option(
        "from", &Options::from,
        "the safetensors file, its index (model.safetensors.index.json), or the folder of either; with "
        "--weights initial where the run has not trained. Left out: the run's weights are written as such a "
        "file");
    m.option("file", &Options::file,
             "where to; empty: weights.safetensors, in the tool's folder below the run");
  }
  explicit Convert(const Options& options) : options_(options) {}

  Report run(Workshop& shop) override {
    const Table& model = shop.config().find("model")->as<Table>();
    const convert::Map map =
        options_.map.empty() ? convert::fitting_map(model) : convert::find_map(options_.map);
    convert::check_options(map, model);
    return options_.from.empty() ? written_back(shop, map, model) : taken(shop, map, model);
  }

 private:
  std::string place(Workshop& shop) const {
    return options_.file.empty() ? shop.folder() + "/weights.safetensors" : options_.file;
  }

  /// On the CPU.
  static convert::Tensors own(Workshop& shop) {
    convert::Tensors tensors = shop.weights();
    for (NamedTensor& each : tensors) each.tensor = each.tensor.detach().to(at::kCPU);
    return tensors;
  }

  Report taken(Workshop& shop, const convert::Map& map, const Table& model) const {
    const std::int64_t settings = convert::check_settings(map, model, convert::folder_of(options_.from));
    const convert::Tensors file = convert::read_weights(options_.from);
    const convert::Translated made = convert::to_ours(map, file, own(shop), options_.from);
    const std::string path = place(shop);
    write_safetensors(path, made.tensors);
    Report report;
    report.facts = {{"file", path},
                    {"from", options_.from},
                    {"map", map.name},
                    {"tensors", static_cast<std::int64_t>(made.tensors.size())},
                    {"of the file", static_cast<std::int64_t>(file.size())},
                    {"settings checked", settings}};
    if (made.ignored.empty()) return report;
    report.columns = {"not needed"};
    for (const std::string& each : made.ignored) report.rows.push_back({each});
    return report;
  }

  Report written_back(Workshop& shop, const convert::Map& map, const Table& model) const {
    const convert::Tensors file = convert::to_file(map, own(shop), model);
    const std::string path = place(shop);
    write_safetensors(path, file, {{"format", "pt"}});
    Report report;
    report.facts = {{"file", path},
                    {"from", shop.source()},
                    {"map", map.name},
                    {"tensors", static_cast<std::int64_t>(file.size())}};
    return report;
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Convert)
