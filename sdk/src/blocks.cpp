#include <trainyard/helpers/blocks.hpp>

#include <string>

#include <trainyard/error.hpp>

namespace trainyard {
namespace {

std::string at_hop(const char* name, std::size_t hop) {
  return name + std::to_string(hop);
}

bool is_list(const FieldSchema& field, const std::string& name) {
  return field.name == name && field.rows == Rows::free && field.dtype == at::kLong && field.shape.empty();
}

}  // namespace

BlockSchema find_blocks(const BatchSchema& schema) {
  const std::vector<FieldSchema>& inputs = schema.inputs;
  BlockSchema found;
  const bool has_features = !inputs.empty() && inputs[0].rows == Rows::free && inputs[0].shape.size() == 1 &&
                            c10::isFloatingType(inputs[0].dtype);
  std::size_t next = 1;
  while (next + 1 < inputs.size() && is_list(inputs[next], at_hop("rowptr", found.hops + 1)) &&
         is_list(inputs[next + 1], at_hop("col", found.hops + 1))) {
    ++found.hops;
    next += 2;
  }
  if (!has_features || found.hops == 0) {
    std::string names;
    for (const FieldSchema& field : inputs) names += (names.empty() ? "" : ", ") + field.name;
    throw ConfigError("the model takes nodes of a graph with their neighbours; the data gives " +
                      (names.empty() ? "no input" : names) + ": use a dataset of graphs, such as graph");
  }
  found.width = inputs[0].shape.front();
  for (; next < inputs.size(); ++next) {
    const FieldSchema& field = inputs[next];
    if (is_list(field, "degree")) found.degree = next;
    if (field.dtype != at::kLong) continue;
    if (field.name == "ends" && field.rows == Rows::sample && field.shape.size() == 2 && field.shape[1] == 2)
      found.ends = next;
    if (field.name == "edge" && field.rows == Rows::sample && field.shape == std::vector<std::int64_t>{2})
      found.edge = next;
    if (field.name == "graphs" && field.rows == Rows::offsets) found.graphs = next;
  }
  return found;
}

std::vector<Block> blocks_of(const Batch& batch, const BlockSchema& schema, std::size_t layers) {
  if (schema.hops != 1 && schema.hops != layers)
    throw ConfigError("the model has " + std::to_string(layers) + " layers, and the data " +
                      std::to_string(schema.hops) + " hops: make both the same");
  std::vector<Block> blocks;
  std::int64_t sources = batch.inputs[0].size(0);
  for (std::size_t hop = 0; hop < schema.hops; ++hop) {
    blocks.push_back({batch.inputs[1 + 2 * hop], batch.inputs[2 + 2 * hop], sources});
    sources = blocks.back().targets();
  }
  if (layers > 1 && schema.hops == 1) {
    if (blocks.front().targets() != blocks.front().sources)
      throw ConfigError("the model has " + std::to_string(layers) +
                        " layers, and the data one hop: make both the same");
    blocks.resize(layers, blocks.front());
  }
  return blocks;
}

std::vector<FieldSchema> block_fields(std::int64_t width, at::ScalarType dtype, std::size_t hops, bool degree,
                                      GraphTask task, std::int64_t pairs) {
  std::vector<FieldSchema> fields = {
      {.name = "features", .shape = {width}, .dtype = dtype, .rows = Rows::free}};
  const auto add_list = [&](std::string name) {
    fields.push_back({.name = std::move(name), .shape = {}, .dtype = at::kLong, .rows = Rows::free});
  };
  for (std::size_t hop = 1; hop <= hops; ++hop) {
    add_list(at_hop("rowptr", hop));
    add_list(at_hop("col", hop));
  }
  if (degree) add_list("degree");
  if (task == GraphTask::edge) fields.push_back({.name = "ends", .shape = {pairs, 2}, .dtype = at::kLong});
  if (task == GraphTask::told_edge) fields.push_back({.name = "edge", .shape = {2}, .dtype = at::kLong});
  if (task == GraphTask::graph)
    fields.push_back({.name = "graphs", .shape = {}, .dtype = at::kLong, .rows = Rows::offsets});
  return fields;
}

}  // namespace trainyard
