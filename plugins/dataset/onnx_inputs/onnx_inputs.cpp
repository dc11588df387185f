// Made-up samples in the shapes that the inputs of an ONNX file have: for a network on which there is no data here, but
// of which a tool wants to know something.
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <trainyard/dataset.hpp>

#include <model/onnx/model_file.hpp>

namespace {

using namespace trainyard;

class OnnxInputs final : public Dataset {
 public:
  struct Options {
    std::string file;
    std::int64_t size = 64;
    std::int64_t outputs = 0;
    bool classes = true;
  };
  static void describe(Manifest<Options>& m) {
    m.name("onnx_inputs").version("1.0.0").summary("Normal numbers for a network of an ONNX file.");
    m.option("file", &Options::file, "the file; its weights are not read").required().file();
    m.option("size", &Options::size, "samples").range(1, 1 << 20);
    m.option("classes", &Options::classes,
             "targets are classes by chance, a class an output; else numbers that are 0");
    m.option("outputs", &Options::outputs, "numbers of a target; 0: as many as the file's only output has")
        .range(0, 1 << 30);
  }
  explicit OnnxInputs(const Options& options) : options_(options) {}

  void open(const std::string& split) override {
    split_ = split;
    onnx::ModelFile model;
    onnx::read_model(options_.file, model);
    std::set<std::string> constants;
    for (const onnx::TensorData& tensor : model.initializers) constants.insert(tensor.name);
    for (const onnx::SparseData& tensor : model.sparse_initializers) constants.insert(tensor.values.name);
    for (const onnx::FileValue& input : model.inputs)
      if (!constants.contains(input.name)) schema_.inputs.push_back({input.name, sample(input)});
    std::int64_t outputs = options_.outputs;
    if (outputs == 0 && model.outputs.size() == 1)
      outputs = onnx::elements(sample(model.outputs.front()), model.outputs.front().name);
    if (schema_.inputs.empty() || outputs == 0)
      throw DataError(options_.file + ": has " + std::to_string(schema_.inputs.size()) + " inputs and " +
                      std::to_string(model.outputs.size()) +
                      " outputs, expected an input and one output; of several, set the option outputs to the "
                      "numbers of the one that is wanted");
    if (options_.classes && outputs < 2)
      throw ConfigError(options_.file + ": has one output, and classes need one each; set classes = false");
    schema_.target = options_.classes ? FieldSchema{"class", {}, at::kLong} : FieldSchema{"value", {outputs}};
    schema_.classes = options_.classes ? outputs : 0;
  }

  std::int64_t size() const override { return options_.size; }
  BatchSchema schema() const override { return schema_; }

  Batch read(std::span<const std::int64_t> indices, const ReadContext&) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    Batch batch;
    for (const FieldSchema& field : schema_.inputs) {
      const RandomStream stream(0, "onnx_inputs/" + split_ + "/" + field.name);
      std::vector<std::int64_t> shape = field.shape;
      shape.insert(shape.begin(), count);
      at::Tensor samples = at::empty(shape, at::kFloat);
      for (std::int64_t i = 0; i < count; ++i) {
        at::Tensor one = samples[i];
        fill_normal(one, stream.at(static_cast<std::uint64_t>(indices[static_cast<std::size_t>(i)])), 0.0,
                    1.0);
      }
      batch.inputs.push_back(std::move(samples));
    }
    if (!options_.classes) {
      batch.target = at::zeros({count, schema_.target.shape.front()}, at::kFloat);
      return batch;
    }
    batch.target = at::empty({count}, at::kLong);
    auto* const target = batch.target.mutable_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < count; ++i) target[i] = label(indices[static_cast<std::size_t>(i)]);
    return batch;
  }

  std::vector<std::int64_t> labels() const override {
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; options_.classes && i < options_.size; ++i) all.push_back(label(i));
    return all;
  }

 private:
  std::int64_t label(std::int64_t index) const {
    return static_cast<std::int64_t>(
        RandomStream(0, "onnx_inputs/" + split_)
            .below(static_cast<std::uint64_t>(index), static_cast<std::uint64_t>(schema_.classes)));
  }

  /// The shape behind the batch.
  std::vector<std::int64_t> sample(const onnx::FileValue& value) const {
    constexpr std::int64_t float32 = 1;
    std::vector<std::int64_t> shape;
    bool known = value.type == float32 && value.shape && !value.shape->empty();
    for (std::size_t i = 1; known && i < value.shape->size(); ++i) {
      const std::optional<std::int64_t> dim = (*value.shape)[i];
      known = dim && *dim > 0 && *dim <= most_numbers / onnx::elements(shape, value.name);
      if (known) shape.push_back(*dim);
    }
    if (!known)
      throw DataError(
          options_.file + ": \"" + value.name +
          "\" has no known shape of float numbers behind a batch, [batch, numbers...]; write a run file "
          "with data of the network's own");
    return shape;
  }

  static constexpr std::int64_t most_numbers = std::int64_t{1} << 30;

  Options options_;
  std::string split_;
  BatchSchema schema_;
};

}  // namespace

TRAINYARD_PLUGIN(OnnxInputs)
