#include "cycles.hpp"

#include <algorithm>

namespace tensat {
namespace {

constexpr std::size_t block_bytes = std::size_t{128} << 20;  // of the sets of classes below classes

/// A class that a walk is in, and which child of which node comes next.
struct Frame {
  ClassId of;
  std::size_t node = 0, child = 0;
};

/// Walks down from some classes, into each class once. `leave(class)` is called once all below it were seen,
/// `meet(stack, class)` for a class below the last frame's that the walk is in.
template <typename Leave, typename Meet>
void walk_down(const Index& index, std::span<const ClassId> from, const Leave& leave, const Meet& meet) {
  enum : std::uint8_t { unseen, open, done };
  std::vector<std::uint8_t> state(index.graph().classes_made(), unseen);
  std::vector<Frame> stack;
  const auto enter = [&](ClassId of) {
    state[of] = open;
    stack.push_back({of});
  };
  for (const ClassId each : from) {
    const ClassId start = index.graph().find(each);
    if (state[start] != unseen) continue;
    enter(start);
    while (!stack.empty()) {
      Frame& top = stack.back();
      const auto nodes = index.nodes(top.of);
      if (top.node == nodes.size()) {
        state[top.of] = done;
        leave(top.of);
        stack.pop_back();
        continue;
      }
      const auto children = index.children(nodes[top.node].node);
      if (top.child == children.size()) {
        ++top.node;
        top.child = 0;
        continue;
      }
      const ClassId next = children[top.child++];
      if (state[next] == unseen)
        enter(next);
      else if (state[next] == open)
        meet(stack, next);
    }
  }
}

/// Classes, those below before those above them; in a cycle one comes first.
std::vector<ClassId> from_below(const Index& index) {
  std::vector<ClassId> order;
  walk_down(
      index, index.classes(), [&](ClassId of) { order.push_back(of); },
      [](const std::vector<Frame>&, ClassId) {});
  return order;
}

}  // namespace

std::vector<bool> answers(const Index& index, std::span<const Question> questions) {
  std::vector<bool> found(questions.size(), false);
  std::vector<ClassId> ends;
  for (const Question& each : questions) ends.push_back(each.to);
  std::ranges::sort(ends);
  ends.erase(std::ranges::unique(ends).begin(), ends.end());
  if (ends.empty()) return found;
  constexpr std::uint32_t none = 0xffffffff;
  const std::vector<ClassId> order = from_below(index);
  const std::size_t classes = index.graph().classes_made();
  const std::size_t words =
      std::min((ends.size() + 63) / 64, std::max<std::size_t>(1, block_bytes / 8 / classes));
  std::vector<std::uint64_t> below;
  std::vector<std::uint32_t> column(classes, none);
  for (std::size_t begin = 0; begin < ends.size(); begin += words * 64) {
    const std::size_t end = std::min(ends.size(), begin + words * 64);
    for (std::size_t i = begin; i < end; ++i) column[ends[i]] = static_cast<std::uint32_t>(i - begin);
    below.assign(classes * words, 0);
    for (const ClassId of : order) {
      std::uint64_t* own = below.data() + of * words;
      for (const Index::Entry& entry : index.nodes(of))
        for (const ClassId child : index.children(entry.node)) {
          const std::uint64_t* others = below.data() + child * words;
          for (std::size_t i = 0; i < words; ++i) own[i] |= others[i];
          if (column[child] != none) own[column[child] / 64] |= std::uint64_t{1} << (column[child] % 64);
        }
    }
    for (std::size_t i = 0; i < questions.size(); ++i) {
      const std::uint32_t which = column[questions[i].to];
      if (which != none) found[i] = (below[questions[i].from * words + which / 64] >> (which % 64) & 1) != 0;
    }
    for (std::size_t i = begin; i < end; ++i) column[ends[i]] = none;
  }
  return found;
}

bool reaches(const EGraph& graph, std::span<const ClassId> from, std::span<const ClassId> to) {
  std::vector<bool> seen(graph.classes_made(), false), wanted(graph.classes_made(), false);
  for (const ClassId each : from) wanted[graph.find(each)] = true;
  std::vector<ClassId> todo;
  for (const ClassId each : to) todo.push_back(graph.find(each));
  // Upwards, as an e-graph that is being changed knows the parents of a class and not its nodes.
  while (!todo.empty()) {
    const ClassId here = todo.back();
    todo.pop_back();
    bool found = false;
    graph.for_parents(here, [&](NodeId parent) {
      if (graph.blacklisted(parent)) return;
      const ClassId above = graph.class_of(parent);
      if (wanted[above]) found = true;
      if (seen[above]) return;
      seen[above] = true;
      todo.push_back(above);
    });
    if (found) return true;
  }
  return false;
}

namespace {

/// Cycles that one walk from the roots comes upon, each by its nodes; none where there is none.
std::vector<std::vector<NodeId>> some_cycles(const Index& index, std::span<const ClassId> roots) {
  std::vector<std::vector<NodeId>> cycles;
  walk_down(
      index, roots, [](ClassId) {},
      [&](const std::vector<Frame>& stack, ClassId of) {
        cycles.emplace_back();
        for (auto frame = stack.rbegin();; ++frame) {
          cycles.back().push_back(index.nodes(frame->of)[frame->node].node);
          if (frame->of == of) break;
        }
      });
  return cycles;
}

}  // namespace

std::size_t break_cycles(EGraph& graph, std::span<const ClassId> roots) {
  std::size_t count = 0;
  for (;;) {
    const Index index(graph);
    const auto cycles = some_cycles(index, roots);
    if (cycles.empty()) return count;
    for (const std::vector<NodeId>& cycle : cycles) {
      if (std::ranges::any_of(cycle, [&](NodeId node) { return graph.blacklisted(node); })) continue;
      // A node's children are in classes with older nodes. So the youngest of a cycle, which another one of it has as a child, is not the
      // oldest of its class, and those together are free of cycles.
      graph.blacklist(*std::ranges::max_element(cycle));
      ++count;
    }
  }
}

}  // namespace tensat
