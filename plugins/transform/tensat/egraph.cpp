#include "egraph.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "pattern.hpp"

namespace tensat {

OpId Symbols::of(std::string_view name) {
  if (const auto known = ids_.find(name); known != ids_.end()) return known->second;
  const auto id = static_cast<OpId>(names_.size());
  names_.emplace_back(name);
  ids_.emplace(names_.back(), id);
  return id;
}

std::optional<OpId> Symbols::find(std::string_view name) const {
  const auto known = ids_.find(name);
  if (known == ids_.end()) return std::nullopt;
  return known->second;
}

ClassId EGraph::find(ClassId each) const {
  while (union_[each] != each) {
    union_[each] = union_[union_[each]];
    each = union_[each];
  }
  return each;
}

std::uint32_t EGraph::hash_of(OpId op, const ClassId* children, std::size_t count) {
  std::uint64_t hash = (op + 1) * 0x9e3779b97f4a7c15u;
  for (std::size_t i = 0; i < count; ++i) {
    hash = (hash ^ children[i]) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return static_cast<std::uint32_t>(hash ^ (hash >> 29));
}

/// The place of this node in the table, or the free one where it would be. A node whose children changed stands in places of
/// before, too: it is compared by those that it has now, so that it is found there or passed over.
std::size_t EGraph::place_of(std::uint32_t hash, OpId op, const ClassId* children, std::size_t count) const {
  const std::size_t mask = table_.size() - 1;
  std::size_t place = hash & mask;
  for (; table_[place].node != none; place = (place + 1) & mask) {
    if (table_[place].hash != hash) continue;
    const Node& node = nodes_[table_[place].node];
    if (node.op != op || node.arity != count) continue;
    const ClassId* const its = children_.data() + node.first;
    std::size_t same = 0;  // a call of memcmp takes longer than these few
    while (same < count && its[same] == children[same]) ++same;
    if (same == count) break;
  }
  return place;
}

void EGraph::insert(std::uint32_t hash, NodeId node, std::size_t place) {
  table_[place] = {hash, node};
  if (++used_ * 2 > table_.size()) grow();
}

void EGraph::grow() {
  std::size_t size = 1024;
  while (size < alive_ * 4) size *= 2;
  table_.assign(size, {});
  used_ = 0;
  for (NodeId each = 0; each < nodes_made(); ++each) {
    const Node& node = nodes_[each];
    if (!node.alive) continue;
    // One that waits for rebuild() may equal another one by now; it is found to be that then.
    const std::uint32_t hash = hash_of(node.op, children_.data() + node.first, node.arity);
    const std::size_t place = place_of(hash, node.op, children_.data() + node.first, node.arity);
    if (table_[place].node != none) continue;
    table_[place] = {hash, each};
    ++used_;
  }
}

NodeId EGraph::make_node(OpId op, const ClassId* children, std::size_t count, ClassId of) {
  const NodeId id = nodes_made();
  nodes_.push_back({.op = op,
                    .first = static_cast<std::uint32_t>(children_.size()),
                    .of = of,
                    .arity = static_cast<std::uint8_t>(count)});
  for (std::size_t i = 0; i < count; ++i) {
    const auto edge = static_cast<std::uint32_t>(children_.size());
    children_.push_back(children[i]);
    Above& above = above_[children[i]];
    edges_.push_back({above.first, id});
    above.first = edge;
    if (above.last == none) above.last = edge;
    ++above.count;
  }
  ++alive_;
  return id;
}

ClassId EGraph::add(OpId op, std::span<const ClassId> given) {
  if (given.size() > max_arity)
    throw std::length_error("a node of '" + symbols.name(op) + "' has more than 16 children");
  ClassId children[max_arity];
  for (std::size_t i = 0; i < given.size(); ++i) children[i] = find(given[i]);
  if (table_.empty()) grow();
  const std::uint32_t hash = hash_of(op, children, given.size());
  const std::size_t place = place_of(hash, op, children, given.size());
  if (table_[place].node != none) return class_of(table_[place].node);
  const auto of = static_cast<ClassId>(above_.size());
  above_.emplace_back();
  union_.push_back(of);
  ++classes_;
  const NodeId made = make_node(op, children, given.size(), of);
  insert(hash, made, place);
  if (analysis_ != nullptr) {
    analysis_->make(*this, made, of);
    analysis_->modify(*this, of);
  }
  return find(of);
}

std::uint32_t EGraph::announce(OpId op, std::span<const ClassId> given) const {
  if (table_.empty() || given.size() > max_arity) return 0;
  ClassId children[max_arity];
  for (std::size_t i = 0; i < given.size(); ++i) {
    children[i] = find(given[i]);
    __builtin_prefetch(&above_[children[i]]);
  }
  const std::uint32_t hash = hash_of(op, children, given.size());
  __builtin_prefetch(&table_[hash & (table_.size() - 1)]);
  return hash;
}

void EGraph::announce_node(std::uint32_t hash) const {
  if (table_.empty()) return;
  const Slot& slot = table_[hash & (table_.size() - 1)];
  if (slot.hash == hash && slot.node != none) __builtin_prefetch(&nodes_[slot.node]);
}

void EGraph::announce_children(std::uint32_t hash) const {
  if (table_.empty()) return;
  const Slot& slot = table_[hash & (table_.size() - 1)];
  if (slot.hash == hash && slot.node != none) __builtin_prefetch(&children_[nodes_[slot.node].first]);
}

std::optional<ClassId> EGraph::lookup(OpId op, std::span<const ClassId> given) const {
  if (table_.empty() || given.size() > max_arity) return std::nullopt;
  ClassId children[max_arity];
  for (std::size_t i = 0; i < given.size(); ++i) children[i] = find(given[i]);
  const std::size_t place = place_of(hash_of(op, children, given.size()), op, children, given.size());
  if (table_[place].node == none) return std::nullopt;
  return class_of(table_[place].node);
}

ClassId EGraph::add_term(std::string_view term) {
  std::vector<std::string> variables;
  const Pattern pattern = parse_pattern(term, symbols, variables);
  if (!variables.empty())
    throw std::invalid_argument("'" + std::string(term) + "' has the variable " + variables[0] +
                                ", and a term none");
  return instantiate(*this, pattern, {});
}

bool EGraph::unite(ClassId a, ClassId b) {
  a = find(a);
  b = find(b);
  if (a == b) return false;
  if (above_[a].count < above_[b].count) std::swap(a, b);  // whose parents change is the smaller
  for (std::uint32_t edge = above_[b].first; edge != none; edge = edges_[edge].next)
    pending_.push_back(edges_[edge].node);
  union_[b] = a;
  --classes_;
  if (above_[b].first != none) {
    edges_[above_[b].last].next = above_[a].first;
    if (above_[a].last == none) above_[a].last = above_[b].last;
    above_[a].first = above_[b].first;
    above_[a].count += above_[b].count;
  }
  touched_.push_back(a);
  if (analysis_ != nullptr && analysis_->merge(a, b)) changed_.push_back(a);
  return true;
}

/// Restores the place of a node whose children may have become others. Of two that are one now, the older one stays.
void EGraph::restore(NodeId each) {
  Node& node = nodes_[each];
  if (!node.alive) return;
  ClassId* children = children_.data() + node.first;
  for (std::size_t i = 0; i < node.arity; ++i) children[i] = find(children[i]);
  const std::uint32_t hash = hash_of(node.op, children, node.arity);
  const std::size_t place = place_of(hash, node.op, children, node.arity);
  const NodeId other = table_[place].node;
  if (other == none) return insert(hash, each, place);
  if (other == each) return;
  if (!nodes_[other].alive) {  // a place of before, of one that was found to be this or another one
    table_[place].node = each;
    unite(node.of, nodes_[other].of);
    return;
  }
  const NodeId stays = std::min(each, other), goes = std::max(each, other);
  table_[place].node = stays;
  nodes_[goes].alive = false;
  // The input's stay as they are, so that it can be extracted; what is cyclic now is broken up elsewhere.
  if (stays >= input_ && nodes_[goes].blacklisted) nodes_[stays].blacklisted = true;
  --alive_;
  unite(nodes_[stays].of, nodes_[goes].of);
}

void EGraph::renew(ClassId changed) {
  const ClassId of = find(changed);
  std::vector<NodeId> parents;
  for_parents(of, [&](NodeId parent) { parents.push_back(parent); });
  touched_.push_back(of);
  for (const NodeId parent : parents)
    if (analysis_->make(*this, parent, class_of(parent))) changed_.push_back(class_of(parent));
  analysis_->modify(*this, of);
}

/// Restores some nodes, for which memory is on its way by then.
void EGraph::restore_some() {
  NodeId some[32];
  const std::size_t count = std::min(pending_.size(), std::size(some));
  std::copy(pending_.end() - static_cast<std::ptrdiff_t>(count), pending_.end(), some);
  pending_.resize(pending_.size() - count);
  for (std::size_t i = 0; i < count; ++i) __builtin_prefetch(&nodes_[some[i]]);
  for (std::size_t i = 0; i < count; ++i) __builtin_prefetch(&children_[nodes_[some[i]].first]);
  std::uint32_t hashes[std::size(some)];
  for (std::size_t i = 0; i < count; ++i)
    if (nodes_[some[i]].alive) hashes[i] = announce(nodes_[some[i]].op, children(some[i]));
  for (std::size_t i = 0; i < count; ++i)
    if (nodes_[some[i]].alive) announce_node(hashes[i]);
  for (std::size_t i = 0; i < count; ++i) restore(some[i]);
}

void EGraph::rebuild() {
  while (!pending_.empty() || !changed_.empty()) {
    while (!pending_.empty()) restore_some();
    if (changed_.empty()) return;
    const ClassId changed = changed_.back();
    changed_.pop_back();
    renew(changed);
  }
}

std::vector<ClassId> EGraph::take_touched() {
  std::vector<ClassId> found;
  found.swap(touched_);
  for (ClassId& each : found) each = find(each);
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

std::vector<std::string> EGraph::violations() const {
  std::vector<std::string> found;
  std::map<std::pair<OpId, std::vector<ClassId>>, NodeId> seen;
  std::size_t living = 0;
  for (NodeId each = 0; each < nodes_made(); ++each) {
    if (!alive(each)) continue;
    ++living;
    const std::string name = "node " + std::to_string(each);
    std::vector<ClassId> canonical(children(each).begin(), children(each).end());
    for (const ClassId child : canonical)
      if (find(child) != child) found.push_back(name + " has a child that is no canonical class");
    const auto [known, fresh] = seen.try_emplace({op(each), canonical}, each);
    if (!fresh) found.push_back(name + " equals node " + std::to_string(known->second));
    const auto there = lookup(op(each), canonical);
    if (!there || *there != class_of(each)) found.push_back(name + " is not found in its class");
    for (const ClassId child : canonical) {
      bool listed = false;
      for_parents(child, [&](NodeId parent) { listed = listed || parent == each; });
      if (!listed) found.push_back(name + " is not among its child's parents");
    }
  }
  if (living != alive_) found.push_back("the number of nodes is not that of those alive");
  std::size_t roots = 0;
  for (ClassId each = 0; each < classes_made(); ++each) roots += find(each) == each;
  if (roots != classes_) found.push_back("the number of classes is not that of the union-find");
  return found;
}

namespace {

/// Begins of runs by key, of as many keys.
template <typename Key>
std::vector<std::uint32_t> begins(std::span<const NodeId> nodes, std::size_t keys, const Key& key) {
  std::vector<std::uint32_t> begin(keys + 1, 0);
  for (const NodeId node : nodes) ++begin[key(node) + 1];
  for (std::size_t i = 0; i < keys; ++i) begin[i + 1] += begin[i];
  return begin;
}

}  // namespace

Index::Index(const EGraph& graph) : graph_(graph) {
  std::vector<NodeId> nodes;
  nodes.reserve(graph.node_count());
  for (NodeId node = 0; node < graph.nodes_made(); ++node)
    if (graph.alive(node) && !graph.blacklisted(node)) nodes.push_back(node);
  op_begin_ = begins(nodes, graph.symbols.size(), [&](NodeId node) { return graph.op(node); });
  by_op_.resize(nodes.size());
  std::vector<std::uint32_t> next = op_begin_;
  for (const NodeId node : nodes) by_op_[next[graph.op(node)]++] = node;
  begin_ = begins(nodes, graph.classes_made(), [&](NodeId node) { return graph.class_of(node); });
  entries_.resize(nodes.size());
  next = begin_;
  for (const NodeId node : by_op_) entries_[next[graph.class_of(node)]++] = {graph.op(node), node};
  for (ClassId each = 0; each < graph.classes_made(); ++each)
    if (graph.find(each) == each) classes_.push_back(each);
}

std::span<const Index::Entry> Index::nodes(ClassId of, OpId op) const {
  const std::span<const Entry> all = nodes(of);
  if (all.size() <= 16) {
    std::size_t first = 0;
    while (first < all.size() && all[first].op != op) ++first;
    std::size_t last = first;
    while (last < all.size() && all[last].op == op) ++last;
    return all.subspan(first, last - first);
  }
  const auto range = std::ranges::equal_range(all, op, {}, &Entry::op);
  return {range.begin(), range.end()};
}

std::span<const NodeId> Index::with(OpId op) const {
  if (op + 1 >= op_begin_.size()) return {};
  return {by_op_.data() + op_begin_[op], by_op_.data() + op_begin_[op + 1]};
}

}  // namespace tensat
