#include "networks.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include <trainyard/error.hpp>
#include <trainyard/formats/safetensors.hpp>
#include <trainyard/forward_context.hpp>
#include <trainyard/graph/network.hpp>

namespace audit {
namespace {

using namespace trainyard;
namespace fs = std::filesystem;

constexpr const char* file_name = "model.safetensors";

bool is_completed(const std::string& run) {
  std::ifstream file(run + "/result.json");
  const auto result = nlohmann::json::parse(file, nullptr, false);
  return result.is_object() && result.value("status", std::string()) == "completed";
}

/// Returns the newest checkpoint of a run that has weights; empty where there is none.
std::string newest_checkpoint(const std::string& run) {
  std::string newest;
  std::error_code error;
  for (fs::directory_iterator each(run + "/checkpoints", error), end; !error && each != end;
       each.increment(error)) {
    const std::string path = each->path().string();
    if (each->path().filename().string().starts_with("step-") && fs::exists(path + "/" + file_name))
      newest = std::max(newest, path);
  }
  return newest;
}

/// A value that is saved with a network: a parameter, or a buffer.
bool is_weight(const GraphValue& value) {
  return value.initializer.defined() && (value.trainable || value.initializer.is_floating_point());
}

}  // namespace

at::Tensor Judged::logits(const at::Tensor& inputs, at::Device device) const {
  Batch batch;
  batch.inputs = {inputs.to(device)};
  batch.indices.resize(static_cast<std::size_t>(inputs.size(0)));
  return network->forward(batch, {}).to(at::kCPU, at::kFloat).reshape({inputs.size(0), -1});
}

std::int64_t parameters_left(const Network& network) {
  std::int64_t count = 0;
  for (const NamedTensor& each : network.parameters())
    count += each.tensor.detach().count_nonzero().item<std::int64_t>();
  return count;
}

std::string weights_file(const std::string& path) {
  if (!fs::exists(path))
    throw DataError(path + ": there is no such run, checkpoint or file: name one that was trained");
  if (!fs::is_directory(path)) return path;
  const std::string last = path + "/" + file_name, newest = newest_checkpoint(path);
  if (fs::exists(last) && (newest.empty() || is_completed(path))) return last;
  if (!newest.empty()) return newest + "/" + file_name;
  throw DataError(
      path + ": there are no weights: neither " + file_name +
      " nor a checkpoint with one; train first, or name a file that `trainyard export` has written");
}

std::unique_ptr<Network> with_weights(const Graph& graph, const std::string& path) {
  std::map<std::string, at::Tensor> tensors;
  for (NamedTensor& each : read_safetensors(path)) tensors.emplace(each.name, std::move(each.tensor));
  Graph made = graph;
  for (GraphValue& value : made.values) {
    if (value.initializer.defined()) value.initializer = value.initializer.detach().to(at::kCPU);
    if (!is_weight(value)) continue;
    const auto found = tensors.find(value.name);
    if (found == tensors.end())
      throw ConfigError(
          path + ": has no \"" + value.name +
          "\", which the parent has: give networks that were pruned from the parent; one of another "
          "graph goes into models");
    value.initializer = found->second.to(value.initializer.scalar_type()).contiguous();
    value.shape = value.initializer.sizes().vec();
    tensors.erase(found);
  }
  if (!tensors.empty())
    throw ConfigError(
        path + ": has \"" + tensors.begin()->first +
        "\", which the parent has not: give networks that were pruned from the parent; one of another "
        "graph goes into models");
  try {
    made.infer_shapes();
    return std::make_unique<GraphNetwork>(std::move(made));
  } catch (const ConfigError& error) {
    throw ConfigError(path + ": its tensors do not fit the parent's graph: " + error.what());
  }
}

}  // namespace audit
