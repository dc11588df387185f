#include "core/engine/verbs/model_show.hpp"

#include <algorithm>

namespace trainyard::train {
namespace {

using Row = std::vector<std::string>;

/// Writes 61706 as "61,706"; 0 as nothing.
std::string grouped(std::int64_t number) {
  if (number == 0) return "";
  std::string text = std::to_string(number);
  for (std::size_t place = text.size(); place > 3; place -= 3) text.insert(place - 3, 1, ',');
  return text;
}

}  // namespace

std::string aligned(const std::vector<Row>& rows, std::size_t numbers) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string fill(widths[i] - row[i].size(), ' ');
      line += (i == 0 ? "" : "  ") + (i < numbers ? row[i] + fill : fill + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

NodeCost whole_cost(const Graph& graph) {
  NodeCost total;
  for (const trainyard::Node& node : graph.nodes) {
    const NodeCost each = cost(graph, node);
    total.parameters += each.parameters;
    total.multiply_adds += each.multiply_adds;
  }
  return total;
}

std::string show(const Graph& graph, const DropoutPlaces& places, const std::optional<NodeCost>& before) {
  const auto value = [&](ValueId id) -> const GraphValue& {
    return graph.values[static_cast<std::size_t>(id)];
  };
  std::vector<Row> rows = {{"layer", "operator", "output", "parameters", "multiply-adds"}};
  for (const ValueId id : graph.inputs)
    rows.push_back({value(id).name, "input", shape_text(value(id).shape), "", ""});

  for (const trainyard::Node& node : graph.nodes) {
    const NodeCost node_cost = cost(graph, node);
    const std::vector<std::int64_t>& shape = value(node.outputs.front()).shape;
    rows.push_back({node.name, node.op, shape_text(shape), grouped(node_cost.parameters),
                    grouped(node_cost.multiply_adds)});
  }
  const auto add_sum = [&](const char* title, const NodeCost& sum) {
    rows.push_back({title, "", "one sample", grouped(sum.parameters), grouped(sum.multiply_adds)});
  };
  add_sum("total", whole_cost(graph));
  if (before) add_sum("before the transforms", *before);
  std::vector<Row> sites, weights, cells;
  for (const DropoutSite& site : places.sites)
    sites.push_back({"  " + site.id, "axis " + std::to_string(site.axis),
                     "width " + std::to_string(site.width), site.by_name ? "only by name" : "", ""});
  for (const DropoutWeight& weight : places.weights)
    weights.push_back({"  " + weight.id, shape_text(weight.shape), "", "", ""});
  for (const DropoutCell& cell : places.cells)
    cells.push_back({"  " + cell.id, "hidden " + std::to_string(cell.hidden), "", "", ""});
  std::string text =
      aligned(rows, 3) + (sites.empty() ? "dropout sites: none\n" : "dropout sites:\n" + aligned(sites));
  if (!weights.empty()) text += "weights that dropout may mask:\n" + aligned(weights);
  if (!cells.empty()) text += "recurrent layers:\n" + aligned(cells);
  return text;
}

}  // namespace trainyard::train
