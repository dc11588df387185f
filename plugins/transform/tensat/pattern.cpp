#include "pattern.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <stdexcept>

namespace tensat {
namespace {

class Reader {
 public:
  Reader(std::string_view text, Symbols& symbols, std::vector<std::string>& variables)
      : text_(text), symbols_(symbols), variables_(variables) {}

  Pattern whole() {
    term();
    skip();
    if (place_ != text_.size()) fail("nothing more");
    return std::move(made_);
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    throw std::invalid_argument("'" + std::string(text_) + "': expected " + expected + " at character " +
                                std::to_string(place_ + 1));
  }

  void skip() {
    while (place_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[place_])) != 0) ++place_;
  }

  std::string_view word() {
    skip();
    const std::size_t begin = place_;
    while (place_ < text_.size() && text_[place_] != '(' && text_[place_] != ')' &&
           std::isspace(static_cast<unsigned char>(text_[place_])) == 0)
      ++place_;
    if (begin == place_) fail("a name");
    return text_.substr(begin, place_ - begin);
  }

  int once(Pattern::Term term) {
    for (std::size_t i = 0; i < made_.terms.size(); ++i) {
      const Pattern::Term& known = made_.terms[i];
      if (known.op == term.op && known.variable == term.variable && known.children == term.children)
        return static_cast<int>(i);
    }
    made_.terms.push_back(std::move(term));
    return static_cast<int>(made_.terms.size()) - 1;
  }

  int variable(std::string_view name) {
    const auto known = std::ranges::find(variables_, name);
    const auto number = static_cast<int>(known - variables_.begin());
    if (known == variables_.end()) variables_.emplace_back(name);
    return once({.variable = number});
  }

  int term() {
    skip();
    if (place_ == text_.size()) fail("a term");
    if (text_[place_] != '(') {
      const std::string_view name = word();
      return name[0] == '?' ? variable(name) : once({.op = symbols_.of(name)});
    }
    ++place_;
    const std::string_view name = word();
    if (name[0] == '?') fail("an operator, which " + std::string(name) + " is not,");
    Pattern::Term made{.op = symbols_.of(name)};
    for (skip(); place_ < text_.size() && text_[place_] != ')'; skip()) made.children.push_back(term());
    if (place_ == text_.size()) fail("')'");
    ++place_;
    if (made.children.size() > max_arity) fail("16 children at most");
    return once(std::move(made));
  }

  std::string_view text_;
  std::size_t place_ = 0;
  Symbols& symbols_;
  std::vector<std::string>& variables_;
  Pattern made_;
};

}  // namespace

Pattern parse_pattern(std::string_view text, Symbols& symbols, std::vector<std::string>& variables) {
  return Reader(text, symbols, variables).whole();
}

int Pattern::depth() const {
  std::vector<int> depths;
  for (const Term& term : terms) {
    int depth = term.variable == no_variable ? 1 : 0;
    for (const int child : term.children)
      depth = std::max(depth, 1 + depths[static_cast<std::size_t>(child)]);
    depths.push_back(depth);
  }
  return depths.back();
}

Canonical canonical(const Pattern& pattern) {
  Canonical made;
  const auto visit = [&](const auto& self, int which) -> int {
    Pattern::Term term = pattern.terms[static_cast<std::size_t>(which)];
    if (term.variable != Pattern::no_variable) {
      auto known = std::ranges::find(made.names, term.variable);
      if (known == made.names.end()) known = made.names.insert(known, term.variable);
      term.variable = static_cast<int>(known - made.names.begin());
    }
    for (int& child : term.children) child = self(self, child);
    auto& terms = made.pattern.terms;
    for (std::size_t i = 0; i < terms.size(); ++i)
      if (terms[i].op == term.op && terms[i].variable == term.variable && terms[i].children == term.children)
        return static_cast<int>(i);
    terms.push_back(std::move(term));
    return static_cast<int>(terms.size()) - 1;
  };
  visit(visit, static_cast<int>(pattern.terms.size()) - 1);
  return made;
}

bool operator==(const Pattern& a, const Pattern& b) {
  return std::ranges::equal(a.terms, b.terms, [](const Pattern::Term& x, const Pattern::Term& y) {
    return x.op == y.op && x.variable == y.variable && x.children == y.children;
  });
}

ClassId instantiate(EGraph& graph, const Pattern& pattern, std::span<const ClassId> variables) {
  ClassId made[64];
  if (pattern.terms.size() > std::size(made)) throw std::length_error("a pattern has more than 64 parts");
  for (std::size_t i = 0; i < pattern.terms.size(); ++i) {
    const Pattern::Term& term = pattern.terms[i];
    if (term.variable != Pattern::no_variable) {
      made[i] = variables[static_cast<std::size_t>(term.variable)];
      continue;
    }
    ClassId children[max_arity];
    for (std::size_t k = 0; k < term.children.size(); ++k) children[k] = made[term.children[k]];
    made[i] = graph.add(term.op, {children, term.children.size()});
  }
  return graph.find(made[pattern.terms.size() - 1]);
}

void instantiate(EGraph& graph, const Pattern& pattern, std::span<const ClassId> rows, std::size_t width,
                 std::size_t skipped, std::vector<ClassId>& made) {
  const std::size_t count = rows.size() / width, terms = pattern.terms.size();
  std::vector<ClassId> classes(count * terms);
  std::vector<std::uint32_t> hashes(count);
  for (std::size_t i = 0; i < terms; ++i) {
    const Pattern::Term& term = pattern.terms[i];
    if (term.variable != Pattern::no_variable) {
      for (std::size_t row = 0; row < count; ++row)
        classes[row * terms + i] = rows[row * width + skipped + static_cast<std::size_t>(term.variable)];
      continue;
    }
    ClassId children[max_arity];
    const auto gather = [&](std::size_t row) -> std::span<const ClassId> {
      for (std::size_t k = 0; k < term.children.size(); ++k)
        children[k] = classes[row * terms + static_cast<std::size_t>(term.children[k])];
      return {children, term.children.size()};
    };
    for (std::size_t row = 0; row < count; ++row) hashes[row] = graph.announce(term.op, gather(row));
    for (std::size_t row = 0; row < count; ++row) graph.announce_node(hashes[row]);
    for (std::size_t row = 0; row < count; ++row) graph.announce_children(hashes[row]);
    for (std::size_t row = 0; row < count; ++row) classes[row * terms + i] = graph.add(term.op, gather(row));
  }
  for (std::size_t row = 0; row < count; ++row) made.push_back(classes[row * terms + terms - 1]);
}

Target::Child targets_of(const EGraph& graph, const Pattern& pattern, std::span<const ClassId> variables,
                         std::vector<Target>& targets) {
  std::vector<Target::Child> made;
  for (const Pattern::Term& term : pattern.terms) {
    if (term.variable != Pattern::no_variable) {
      made.push_back({true, graph.find(variables[static_cast<std::size_t>(term.variable)])});
      continue;
    }
    Target target{.op = term.op};
    std::vector<ClassId> classes;
    for (const int child : term.children) {
      target.children.push_back(made[static_cast<std::size_t>(child)]);
      if (target.children.back().is_class) classes.push_back(target.children.back().index);
    }
    if (classes.size() == term.children.size()) {
      if (const auto known = graph.lookup(term.op, classes)) {
        made.push_back({true, *known});
        continue;
      }
    }
    made.push_back({false, static_cast<std::uint32_t>(targets.size())});
    targets.push_back(std::move(target));
  }
  return made.back();
}

Matcher::Matcher(const Pattern& pattern, std::size_t variables)
    : pattern_(pattern), registers_(variables), depth_(pattern.depth()) {
  std::vector<bool> grounded;
  for (const Pattern::Term& term : pattern.terms)
    grounded.push_back(term.variable == Pattern::no_variable &&
                       std::ranges::all_of(term.children, [&](int child) {
                         return grounded[static_cast<std::size_t>(child)];
                       }));
  std::vector<std::optional<std::uint16_t>> known(pattern.terms.size());
  struct Todo {
    int term;
    std::uint16_t place;
  };
  std::vector<Todo> todo{{static_cast<int>(pattern.terms.size()) - 1, 0}};
  used_ = 1;
  bool compares = false;
  // Terms that are already somewhere are compared; then come ground ones; operators, which branch, come last.
  while (!todo.empty()) {
    const auto rank = [&](const Todo& each) {
      const auto term = static_cast<std::size_t>(each.term);
      if (pattern.terms[term].variable != Pattern::no_variable || known[term]) return 0;
      return grounded[term] ? 1 : 2;
    };
    const auto next = std::ranges::min_element(todo, {}, rank);
    const auto [which, place] = *next;
    todo.erase(next);
    const auto term = static_cast<std::size_t>(which);
    if (known[term]) {
      steps_.push_back({.kind = Step::same, .from = place, .to = *known[term]});
      compares = true;
      continue;
    }
    known[term] = place;
    const Pattern::Term& each = pattern.terms[term];
    if (each.variable != Pattern::no_variable) {
      registers_[static_cast<std::size_t>(each.variable)] = place;
      continue;
    }
    if (grounded[term] && place != 0) {
      steps_.push_back({.kind = Step::is, .from = place, .to = static_cast<std::uint16_t>(ground_.size())});
      ground_.push_back(which);
      compares = true;
      continue;
    }
    steps_.push_back({.kind = Step::bind,
                      .op = each.op,
                      .arity = static_cast<std::uint16_t>(each.children.size()),
                      .from = place,
                      .to = static_cast<std::uint16_t>(used_)});
    for (const int child : each.children) todo.push_back({child, static_cast<std::uint16_t>(used_++)});
  }
  reach_ = compares ? depth_ : depth_ - 1;
}

struct Matcher::Search {
  const Matcher& of;
  const Index& index;
  Matches& found;
  std::size_t limit;
  std::vector<ClassId> registers, ground, row;
  ClassId root = 0;

  /// Goes on with a step. Returns false once there are too many.
  bool from(std::size_t which) {
    if (which == of.steps_.size()) {
      if (found.size() >= limit) return false;
      for (std::size_t i = 0; i < row.size(); ++i) row[i] = registers[of.registers_[i]];
      found.append(root, row);
      return true;
    }
    const Step& step = of.steps_[which];
    if (step.kind == Step::same) return registers[step.from] != registers[step.to] || from(which + 1);
    if (step.kind == Step::is) return registers[step.from] != ground[step.to] || from(which + 1);
    for (const Index::Entry& entry : index.nodes(registers[step.from], step.op))
      if (!bound(entry.node, step, which)) return false;
    return true;
  }

  bool bound(NodeId node, const Step& step, std::size_t which) {
    const std::span<const ClassId> children = index.children(node);
    if (children.size() != step.arity) return true;
    std::ranges::copy(children, registers.begin() + step.to);
    return from(which + 1);
  }
};

bool Matcher::search(const Index& index, Matches& found, std::size_t limit, const Since* since) const {
  const EGraph& graph = index.graph();
  Search search{
      *this, index, found, limit, std::vector<ClassId>(used_), {}, std::vector<ClassId>(registers_.size())};
  for (const int each : ground_) {
    // A ground term is a pattern without variables; where the graph has none, nothing matches.
    Pattern part;
    part.terms.assign(pattern_.terms.begin(), pattern_.terms.begin() + each + 1);
    std::vector<std::optional<ClassId>> classes;
    for (const Pattern::Term& term : part.terms) {
      std::vector<ClassId> children;
      for (const int child : term.children)
        if (const auto of = classes[static_cast<std::size_t>(child)]) children.push_back(*of);
      classes.push_back(children.size() == term.children.size() && term.variable == Pattern::no_variable
                            ? graph.lookup(term.op, children)
                            : std::nullopt);
    }
    if (!classes.back()) return true;
    search.ground.push_back(*classes.back());
  }
  if (steps_.empty()) {  // a variable by itself
    for (const ClassId each : index.classes()) {
      if (since != nullptr && each < since->of) continue;
      search.root = search.registers[0] = each;
      if (!search.from(0)) return false;
    }
    return true;
  }
  for (const NodeId node : index.with(steps_[0].op)) {
    if (since != nullptr && node < since->node &&
        (since->near[node] == 0 || since->near[node] > since->reach))
      continue;
    search.root = graph.class_of(node);
    if (!search.bound(node, steps_[0], 0)) return false;
  }
  return true;
}

}  // namespace tensat
