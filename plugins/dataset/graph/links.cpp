#include "links.hpp"

#include <mutex>

namespace graph {
namespace {

using namespace trainyard;

/// Calls visit(source, target) for each entry, by targets.
template <class Visit>
void each_entry(const Csr& csr, const Visit& visit) {
  std::visit(
      [&](const auto& col) {
        for (std::size_t target = 0; target + 1 < csr.rowptr.size(); ++target)
          for (std::int64_t i = csr.rowptr[target]; i < csr.rowptr[target + 1]; ++i)
            visit(std::int64_t{col[static_cast<std::size_t>(i)]}, static_cast<std::int64_t>(target));
      },
      csr.col);
}

/// Each edge once; rows are ascending, so that equal ones follow each other.
std::vector<Edge> edges_of(const Csr& csr, bool undirected) {
  std::vector<Edge> edges;
  each_entry(csr, [&](std::int64_t source, std::int64_t target) {
    const Edge edge = {source, target};
    if (source == target || (undirected && source > target) || (!edges.empty() && edges.back() == edge))
      return;
    edges.push_back(edge);
  });
  return edges;
}

Links make_links(std::shared_ptr<const NodeGraph> graph, bool undirected, const Shares& shares) {
  Links links;
  links.undirected = undirected;
  const std::vector<Edge> edges = edges_of(graph->csr, undirected);
  for (const auto& [name, numbers] : split(static_cast<std::int64_t>(edges.size()), shares))
    for (const std::int64_t number : numbers)
      links.splits[name].push_back(edges[static_cast<std::size_t>(number)]);
  const std::int64_t nodes = graph->csr.nodes();
  links.messages = make_csr(nodes, {.undirected = undirected}, [&](const auto& visit) {
    for (const auto& [source, target] : links.splits["train"]) visit(source, target);
    each_entry(graph->csr, [&](std::int64_t source, std::int64_t target) {
      if (source == target) visit(source, target);
    });
  });
  links.known =
      make_csr(nodes, {.undirected = undirected, .self_loops = SelfLoops::add}, [&](const auto& visit) {
        for (const auto& [source, target] : edges) visit(target, source);  // rows are of sources
      });
  links.graph = std::move(graph);
  return links;
}

/// The `number`-th of the nodes that the row, ascending, has not: so many are ahead of an entry as its value
/// exceeds its place.
template <class Col>
std::int64_t absent(std::span<const Col> row, std::int64_t number) {
  std::int64_t low = 0, high = std::ssize(row);
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (row[static_cast<std::size_t>(middle)] - middle <= number)
      low = middle + 1;
    else
      high = middle;
  }
  return number + low;
}

}  // namespace

Edge Links::negative(const Edge& edge, const RandomStream& random, std::uint64_t number) const {
  const bool second = undirected && (full(edge[0]) || (!full(edge[1]) && random.below(2 * number, 2) == 1));
  const std::int64_t kept = edge[second ? 1 : 0];
  const auto free = static_cast<std::uint64_t>(known.nodes() - known.degree(kept));
  const auto which = static_cast<std::int64_t>(random.below(2 * number + 1, free));
  const auto begin = static_cast<std::size_t>(known.rowptr[static_cast<std::size_t>(kept)]);
  const std::int64_t other = std::visit(
      [&](const auto& col) {
        return absent(col.subspan(begin, static_cast<std::size_t>(known.degree(kept))), which);
      },
      known.col);
  return second ? Edge{other, kept} : Edge{kept, other};
}

std::shared_ptr<const Links> open_links(std::shared_ptr<const NodeGraph> graph, bool undirected,
                                        const Shares& shares) {
  static std::mutex mutex;
  static std::map<std::pair<const NodeGraph*, std::string>, std::weak_ptr<const Links>> open;
  const std::lock_guard lock(mutex);
  std::erase_if(open, [](const auto& entry) { return entry.second.expired(); });
  // Links keep their graph, so that its address is no other's.
  std::weak_ptr<const Links>& known = open[{graph.get(), shares.text() + (undirected ? "" : ", directed")}];
  if (std::shared_ptr<const Links> links = known.lock()) return links;
  const auto links = std::make_shared<const Links>(make_links(std::move(graph), undirected, shares));
  known = links;
  return links;
}

}  // namespace graph
