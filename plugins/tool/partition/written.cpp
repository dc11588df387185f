#include "written.hpp"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

#include <trainyard/error.hpp>

#include "../../shared/partition/replicas.hpp"
#include "lib/new_file.hpp"

namespace partition {
namespace {

/// A text that is written in blocks, to a file that appears when it is whole.
class Text {
 public:
  explicit Text(const std::string& path)
      : path_(path), made_(path), file_(made_.temporary(), std::ios::binary) {
    if (!file_) fail(errno);
  }
  void add(std::size_t number, char behind) {
    char digits[24];
    text_.append(digits, std::to_chars(digits, std::end(digits), number).ptr);
    text_ += behind;
    if (text_.size() >= std::size_t{1} << 20) flush();
  }
  void end_line() { text_.back() = '\n'; }
  void finish() {
    file_ << text_;
    file_.close();
    if (!file_) fail(errno);
    if (const auto failure = made_.put_in_place()) fail(failure->reason);
  }

 private:
  void flush() {
    if (text_.empty()) return;
    file_.write(text_.data(), std::ssize(text_) - 1);  // the last character may still change
    text_.erase(0, text_.size() - 1);
    if (!file_) fail(errno);
  }
  [[noreturn]] void fail(int reason) const {
    throw trainyard::DataError(path_ + " cannot be written: " + std::strerror(reason));
  }

  std::string path_;
  trainyard::lib::NewFile made_;
  std::ofstream file_;
  std::string text_;
};

template <class Replicas>
void write_nodes_by(Text& text, const Graph& graph, std::span<const Cluster> assigned,
                    std::span<const Cluster> masters, std::size_t clusters) {
  Replicas replicas(graph, clusters);
  for (std::size_t i = 0; i < assigned.size(); ++i) {
    replicas.add(graph.edges[i].source, assigned[i]);
    replicas.add(graph.edges[i].target, assigned[i]);
  }
  std::vector<Cluster> mirrors;
  for (std::size_t i = 0; i < masters.size(); ++i) {
    mirrors.clear();
    replicas.each(static_cast<Node>(i), [&](Cluster cluster) {
      if (cluster != masters[i]) mirrors.push_back(cluster);
    });
    std::sort(mirrors.begin(), mirrors.end());
    text.add(masters[i], ' ');
    for (const Cluster mirror : mirrors) text.add(mirror, ' ');
    text.end_line();
  }
}

}  // namespace

void write_assignment(const std::string& path, std::span<const Cluster> assigned) {
  Text text(path);
  for (const Cluster cluster : assigned) text.add(cluster, '\n');
  text.finish();
}

void write_nodes(const std::string& path, const Graph& graph, std::span<const Cluster> assigned,
                 std::span<const Cluster> masters, std::size_t clusters) {
  Text text(path);
  if (clusters <= BitReplicas::most)
    write_nodes_by<BitReplicas>(text, graph, assigned, masters, clusters);
  else
    write_nodes_by<ListReplicas>(text, graph, assigned, masters, clusters);
  text.finish();
}

}  // namespace partition
