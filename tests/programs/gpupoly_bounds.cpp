// Bounds that gpupoly finds of all values of ONNX files, for scripts that know what the values are. A line of stdin is a job in
// JSON: {"model": path, "shape": of a sample, "boxes": [{"lower", "upper": one an input, "forms": rows over the outputs, and
// settings by their names}]}. A line of stdout answers: {"boxes": [{"values": {name: {"low", "up"}}, "forms": lower bounds}]}, or
// {"refused": why}. Numbers lie as in the file; null stands for what is not finite.
#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

#include "plugins/model/onnx/import.hpp"
#include "plugins/tool/gpupoly/bounds.hpp"

namespace {

using namespace trainyard;
using namespace gpupoly;
using Json = nlohmann::json;
using Numbers = std::vector<double>;

/// From the graph's order to the verifier's, and back.
Numbers ordered(const Numbers& given, const std::vector<std::int64_t>& shape) {
  Numbers result;
  for (const std::int64_t i : order(shape)) result.push_back(given.at(static_cast<std::size_t>(i)));
  return result;
}
Numbers placed(const Numbers& given, const std::vector<std::int64_t>& shape) {
  Numbers result(given.size());
  const std::vector<std::int64_t> places = order(shape);
  for (std::size_t i = 0; i < given.size(); ++i) result.at(static_cast<std::size_t>(places.at(i))) = given[i];
  return result;
}

Settings settings_of(const Json& box) {
  Settings settings;
  const std::string method = box.value("method", "deeppoly");
  settings.method = method == "ibp" ? Method::ibp : method == "crown" ? Method::crown : Method::deeppoly;
  settings.soundness = box.value("soundness", settings.soundness);
  settings.area = box.value("area", settings.area);
  settings.best_of_depth = box.value("best_of_depth", settings.best_of_depth);
  settings.early_termination = box.value("early_termination", settings.early_termination);
  settings.unstable_only = box.value("unstable_only", settings.unstable_only);
  settings.windows = box.value("windows", settings.windows);
  settings.memory = box.value("memory", settings.memory);
  return settings;
}

Json bounds_of(const Json& box, const Layers& layers, const Graph& graph) {
  Verifier verifier(layers, settings_of(box));
  Forms forms;
  for (const Json& row : box.at("forms")) {
    const auto numbers = row.get<Numbers>();
    forms.lower.insert(forms.lower.end(), numbers.begin(), numbers.end());
    forms.constants.push_back(0.0);
  }
  forms.upper = forms.lower;
  Json answer;
  answer["forms"] = verifier.lower_bounds(ordered(box.at("lower").get<Numbers>(), layers.input_shape),
                                          ordered(box.at("upper").get<Numbers>(), layers.input_shape), forms);
  for (std::size_t k = 1; k < layers.all.size(); ++k) {
    if (layers.all[k].value == no_value) continue;
    const GraphValue& value = graph.values.at(static_cast<std::size_t>(layers.all[k].value));
    const std::vector<std::int64_t> sample(value.shape.begin() + 1, value.shape.end());
    Numbers low = placed(verifier.bounds(k).low, sample);
    for (double& each : low) each = -each;
    answer["values"][value.name] = {{"low", low}, {"up", placed(verifier.bounds(k).up, sample)}};
  }
  return answer;
}

Json answer(const Json& job) {
  onnx::ModelFile model;
  onnx::read_model(job.at("model"), model);
  GraphValue input{.name = "x", .shape = job.at("shape"), .initializer = {}};
  input.shape.insert(input.shape.begin(), batch_dim);
  const auto network = onnx::import_network(model, {input}, {});
  const Layers layers = layers_of(*network->graph());
  Json boxes = Json::array();
  for (const Json& box : job.at("boxes")) boxes.push_back(bounds_of(box, layers, *network->graph()));
  return {{"boxes", boxes}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    Json said;
    try {
      said = answer(Json::parse(line));
    } catch (const Error& error) {
      said = {{"refused", error.what()}};
    }
    std::cout << said.dump() << std::endl;
  }
}
