// A network from an ONNX file, to be trained further. README.md says what is read.
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

#include "../checks.hpp"
#include "import.hpp"

namespace {

using namespace trainyard;

class Onnx final : public Model {
 public:
  struct Options {
    std::string file;
    std::string output;
    std::vector<std::string> fixed;
    bool reshape_input = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("onnx").version("1.0.0").summary("A network of an ONNX file, with its weights.");
    m.provides("graph");
    m.option("file", &Options::file, "the file; external data lies beside it").required().file();
    m.option(
        "output", &Options::output,
        "name of the value that the network gives, such as the one before a last Softmax; empty: the only "
        "output of the file");
    m.option("fixed", &Options::fixed, "patterns of weights that do not train: \"mean*\"");
    m.option("reshape_input", &Options::reshape_input,
             "whether samples of another shape, with as many numbers, are brought into that of the file");
  }
  explicit Onnx(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    models::require_rows(context.schema);
    std::vector<GraphValue> inputs;
    for (const FieldSchema& field : context.schema.inputs) {
      GraphValue value;
      value.name = field.name;
      value.shape = field.shape;
      value.shape.insert(value.shape.begin(), batch_dim);
      value.dtype = field.dtype;
      inputs.push_back(std::move(value));
    }
    onnx::ModelFile model;
    onnx::read_model(options_.file, model);
    auto network =
        onnx::import_network(model, inputs, {options_.output, options_.fixed, options_.reshape_input});
    const Graph& graph = *network->graph();
    const GraphValue& output = graph.values[static_cast<std::size_t>(graph.outputs.front())];
    if (output.shape.empty() || output.shape.front() != batch_dim)
      throw ConfigError(options_.file + ": output \"" + output.name + "\" has shape " +
                        shape_text(output.shape) +
                        ", needs the batch in front: a Reshape may have the size of a batch in it");
    check_outputs(output.shape.back(), context.schema);
    return network;
  }

 private:
  void check_outputs(std::int64_t numbers, const BatchSchema& schema) const {
    const std::int64_t wanted = models::outputs(schema);
    if (numbers == wanted || (numbers == 1 && schema.classes == 2)) return;
    throw ConfigError(options_.file + ": gives " + std::to_string(numbers) +
                      " numbers a sample, the data has " + std::to_string(wanted) +
                      (schema.classes > 0 ? " classes" : " numbers a target") +
                      ": choose other data, or another value of the file by option output");
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Onnx)
