// Networks of ONNX files on inputs of files, for scripts that know what comes out. A line of stdin is a job: model, "batch"
// (the first dimension of the inputs is the batch), "fixed", or "import" (batches that are not computed), file for the output
// (safetensors), files of inputs (TensorProto), by tabs. A line of stdout answers: "ok", or why not.
#include <fstream>
#include <iostream>
#include <sstream>

#include <ATen/core/grad_mode.h>

#include <trainyard/formats/safetensors.hpp>
#include <trainyard/graph/network.hpp>

#include "plugins/model/onnx/import.hpp"

namespace {

using namespace trainyard;

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void run(const std::vector<std::string>& words) {
  onnx::ModelFile model;
  onnx::read_model(words.at(0), model);
  const bool batched = words.at(1) != "fixed";
  std::vector<GraphValue> types;
  std::vector<at::Tensor> inputs;
  for (std::size_t i = 3; i < words.size(); ++i) {
    const std::string bytes = contents(words[i]);
    inputs.push_back(onnx::to_tensor(onnx::parse_tensor(bytes), model));
    GraphValue type;
    type.name = "data" + std::to_string(i);
    type.shape = inputs.back().sizes().vec();
    if (batched) type.shape.at(0) = batch_dim;
    type.dtype = inputs.back().scalar_type();
    types.push_back(std::move(type));
  }
  const auto network = onnx::import_network(model, types, {});
  if (words.at(1) == "import") return;
  at::NoGradGuard no_grad;
  write_safetensors(words.at(2), {{"output", network->forward_all(inputs, {}).front().contiguous()}});
}

std::string answer(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream in(line);
  for (std::string word; std::getline(in, word, '\t');) words.push_back(word);
  try {
    run(words);
  } catch (const Error& error) {
    return error.what();
  }
  return "ok";
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::string said = answer(line);
    for (char& c : said)
      if (c == '\n') c = ' ';
    std::cout << said << std::endl;
  }
}
