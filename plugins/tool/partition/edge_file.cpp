#include "edge_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include <trainyard/error.hpp>

#include "lib/descriptor.hpp"
#include "lib/mapping.hpp"
#include "lib/new_file.hpp"
#include "lib/printed.hpp"

namespace partition {
namespace {

using trainyard::DataError;

constexpr std::string_view magic = "tyedges1";
constexpr std::size_t head = 24;  ///< bytes of the binary form ahead of its edges
constexpr std::size_t most_ids = (std::size_t{1} << 32) - 1;

struct Bytes {
  std::shared_ptr<const trainyard::lib::Mapping> mapping;  ///< none: the file is empty
  std::string_view text() const {
    if (!mapping) return {};
    return {reinterpret_cast<const char*>(mapping->data()), mapping->size()};
  }
};

Bytes map(const std::string& path) {
  const auto fail = [&] { throw DataError(path + ": cannot be read: " + std::strerror(errno)); };
  const trainyard::lib::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat found {};
  if (!file || ::fstat(file.get(), &found) != 0) fail();
  if (!S_ISREG(found.st_mode)) throw DataError(path + ": is no file");
  Bytes bytes;
  if (found.st_size == 0) return bytes;
  bytes.mapping =
      std::make_shared<trainyard::lib::Mapping>(file.get(), static_cast<std::size_t>(found.st_size));
  if (!bytes.mapping->good()) fail();
  return bytes;
}

/// The lines of a text that have fields.
class Lines {
 public:
  Lines(std::string path, std::string_view text) : path_(std::move(path)), rest_(text) {}

  bool next() {
    do {
      if (rest_.empty()) return false;
      const std::size_t end = std::min(rest_.find('\n'), rest_.size());
      line_ = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++number_;
      split();
    } while (count_ == 0 || fields_[0].front() == '#' || fields_[0].front() == '%');
    return true;
  }
  /// A line may have more fields than are kept.
  std::size_t count() const { return count_; }
  std::string_view operator[](std::size_t field) const { return fields_[field]; }

  [[noreturn]] void fail(const std::string& message) const {
    throw DataError(path_ + ":" + std::to_string(number_) + ": " + message);
  }

  /// A number of 0 or more.
  double number(std::string_view text, const char* what) const {
    double value = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0.0)
      fail(std::string(what) + " is \"" + std::string(text.substr(0, 40)) +
           "\": expected a finite number that is not negative");
    return value;
  }
  Node node(std::string_view text) const {
    if (text.size() > 1 && text.front() == '-')
      fail("node " + std::string(text.substr(0, 40)) + " is negative: expected numbers from 0 on");
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range || value >= most_ids)
      fail("node " + std::string(text.substr(0, 40)) + " is too large: expected at most " +
           std::to_string(most_ids - 1));
    if (error != std::errc() || end != text.data() + text.size())
      fail("\"" + std::string(text.substr(0, 40)) + "\" is no node: expected a whole number from 0 on");
    return static_cast<Node>(value);
  }

 private:
  static bool is_between(char c) { return c == ' ' || c == '\t' || c == ',' || c == '\r'; }

  void split() {
    count_ = 0;
    for (std::size_t i = 0; i < line_.size();) {
      if (is_between(line_[i])) {
        ++i;
        continue;
      }
      std::size_t end = i;
      while (end < line_.size() && !is_between(line_[end])) ++end;
      if (count_ < std::size(fields_)) fields_[count_] = line_.substr(i, end - i);
      ++count_;
      i = end;
    }
  }

  std::string path_;
  std::string_view rest_, line_, fields_[3];
  std::size_t count_ = 0;
  std::int64_t number_ = 0;
};

struct Held {
  std::vector<Edge> edges;
  std::vector<double> weights;
};

Graph read_text(const std::string& path, std::string_view text, const std::atomic<bool>& stop) {
  constexpr std::size_t stop_every = 1 << 16;
  const auto held = std::make_shared<Held>();
  Lines lines(path, text);
  std::size_t columns = 0;
  while (lines.next()) {
    if (lines.count() < 2 || lines.count() > 3)
      lines.fail("has " + std::to_string(lines.count()) + " column" + (lines.count() == 1 ? "" : "s") +
                 ": expected two nodes, or two nodes and a weight");
    if (columns != 0 && lines.count() != columns)
      lines.fail("has " + std::to_string(lines.count()) + " columns, and the lines ahead have " +
                 std::to_string(columns) + ": a weight is on all lines or on none");
    columns = lines.count();
    held->edges.push_back({lines.node(lines[0]), lines.node(lines[1])});
    if (columns == 3) held->weights.push_back(lines.number(lines[2], "the weight"));
    if (held->edges.size() > most_edges) lines.fail("more edges than " + std::to_string(most_edges));
    if (held->edges.size() % stop_every == 0 && stop) return {};
  }
  Graph graph;
  graph.edges = held->edges;
  graph.weights = held->weights;
  graph.owner = held;
  return graph;
}

Graph map_binary(const std::string& path, const Bytes& bytes) {
  const std::string_view text = bytes.text();
  std::uint64_t numbers[2] = {0, 0};
  if (text.size() >= head) std::memcpy(numbers, text.data() + magic.size(), sizeof numbers);
  const auto [edges, weighted] = std::pair(numbers[0], numbers[1]);
  if (text.size() < head || weighted > 1 || edges > most_edges ||
      text.size() != head + edges * (sizeof(Edge) + weighted * sizeof(double)))
    throw DataError(path + ": is damaged: its size is not that of its edges");
  Graph graph;
  graph.edges = {reinterpret_cast<const Edge*>(text.data() + head), edges};
  if (weighted == 1)
    graph.weights = {reinterpret_cast<const double*>(text.data() + head + edges * sizeof(Edge)), edges};
  graph.owner = bytes.mapping;
  const auto fail = [&](std::size_t edge, const std::string& message) {
    throw DataError(path + ": edge " + std::to_string(edge + 1) + ": " + message);
  };
  for (std::size_t i = 0; i < edges; ++i)
    if (graph.edges[i].source >= most_ids || graph.edges[i].target >= most_ids)
      fail(i, "a node is too large: expected at most " + std::to_string(most_ids - 1));
  for (std::size_t i = 0; i < graph.weights.size(); ++i)
    if (!std::isfinite(graph.weights[i]) || graph.weights[i] < 0.0)
      fail(i, "the weight is " + trainyard::lib::shortest(graph.weights[i]) +
                  ": expected a finite number that is not negative");
  return graph;
}

std::vector<double> read_costs(const std::string& path) {
  const Bytes bytes = map(path);
  Lines lines(path, bytes.text());
  std::vector<double> costs;
  while (lines.next()) {
    if (lines.count() != 1)
      lines.fail("has " + std::to_string(lines.count()) + " columns: expected the cost of a node");
    costs.push_back(lines.number(lines[0], "the cost"));
  }
  if (costs.empty()) throw DataError(path + ": has no costs");
  return costs;
}

/// Arrays are as long as the largest node says: ids with large gaps between them would take all memory.
void check_ids(const Graph& graph, const std::string& path, std::size_t ids) {
  constexpr std::size_t most_a_edge = 64, always = 1 << 20;
  if (!graph.costs.empty() && ids > graph.costs.size())
    throw DataError(path + ": has a node " + std::to_string(ids - 1) + ", and the costs are those of " +
                    std::to_string(graph.costs.size()) + " nodes: expected a cost for each");
  if (ids > always && ids > most_a_edge * graph.edges.size())
    throw DataError(path + ": has a node " + std::to_string(ids - 1) + " and only " +
                    std::to_string(graph.edges.size()) +
                    " edges: number the nodes from 0 on, without large gaps");
}

}  // namespace

Graph read_graph(const std::string& path, const std::string& costs, const std::atomic<bool>& stop) {
  const Bytes bytes = map(path);
  Graph graph =
      bytes.text().starts_with(magic) ? map_binary(path, bytes) : read_text(path, bytes.text(), stop);
  if (stop) return {};
  if (graph.edges.empty()) throw DataError(path + ": has no edges");
  if (!costs.empty()) graph.costs = read_costs(costs);
  Node last = 0;
  for (const Edge& edge : graph.edges) last = std::max({last, edge.source, edge.target});
  check_ids(graph, path, std::size_t{last} + 1);
  count(graph, std::size_t{last} + 1);
  if (!std::isfinite(graph.total_weight))
    throw DataError(path + ": the weights sum up to more than a number can hold: scale them down");
  return graph;
}

void write_edges(const std::string& path, const Graph& graph) {
  const auto fail = [&](int reason) {
    throw DataError(path + ": cannot be written: " + std::strerror(reason));
  };
  trainyard::lib::NewFile made(path);
  std::ofstream file(made.temporary(), std::ios::binary);
  if (!file) fail(errno);
  const std::uint64_t numbers[] = {graph.edges.size(), graph.weights.empty() ? 0U : 1U};
  file.write(magic.data(), std::ssize(magic));
  file.write(reinterpret_cast<const char*>(numbers), sizeof numbers);
  file.write(reinterpret_cast<const char*>(graph.edges.data()),
             static_cast<std::streamsize>(graph.edges.size_bytes()));
  file.write(reinterpret_cast<const char*>(graph.weights.data()),
             static_cast<std::streamsize>(graph.weights.size_bytes()));
  file.close();
  if (!file) fail(errno);
  if (const auto failure = made.put_in_place()) fail(failure->reason);
}

}  // namespace partition
