#include "rewrite.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "cycles.hpp"
#include "stopwatch.hpp"

namespace tensat {
namespace {

std::vector<Pattern> patterns_of(std::string_view text, Symbols& symbols,
                                 std::vector<std::string>& variables) {
  std::vector<Pattern> made;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    made.push_back(parse_pattern(text.substr(begin, end - begin), symbols, variables));
    begin = end + 1;
  }
  return made;
}

}  // namespace

Rule parse_rule(std::string_view name, std::string_view text, Symbols& symbols) {
  Rule rule{.name = std::string(name)};
  const auto fail = [&](const std::string& why) {
    throw std::invalid_argument("rule " + rule.name + ": " + why);
  };
  const std::size_t arrow = text.find("=>");
  if (arrow == std::string_view::npos) fail("'" + std::string(text) + "' has no '=>'");
  try {
    rule.sources = patterns_of(text.substr(0, arrow), symbols, rule.variables);
    const std::size_t known = rule.variables.size();
    rule.targets = patterns_of(text.substr(arrow + 2), symbols, rule.variables);
    if (rule.variables.size() > known) fail("its sources have no " + rule.variables[known]);
  } catch (const std::invalid_argument& error) {
    if (std::string_view(error.what()).starts_with("rule ")) throw;
    fail(error.what());
  }
  if (rule.sources.size() != rule.targets.size()) fail("it needs as many targets as sources");
  return rule;
}

std::string_view text_of(Stop stop) {
  switch (stop) {
    case Stop::saturated: return "saturated";
    case Stop::nodes: return "nodes";
    case Stop::iterations: return "iterations";
    case Stop::seconds: return "seconds";
    case Stop::matches: return "matches";
    case Stop::reached: return "reached";
  }
  return "";
}

namespace {

/// A source as one of the patterns that are searched for, once for all rules that have it.
struct Source {
  std::size_t pattern = 0;
  std::vector<int> names;  ///< its variables' numbers in the rule
};

/// Places where a rule applies: classes of the sources, then those of the variables.
struct Places {
  std::size_t sources = 0, width = 0;
  std::vector<ClassId> rows;
  std::vector<bool> cyclic;  // by row, of the filter; empty: none

  std::size_t size() const { return width == 0 ? 0 : rows.size() / width; }
  std::span<const ClassId> roots(std::size_t i) const { return {rows.data() + i * width, sources}; }
  std::span<const ClassId> variables(std::size_t i) const {
    return {rows.data() + i * width + sources, width - sources};
  }
};

/// Rows of a table by what they have for some of their variables.
class Join {
 public:
  Join(const Matches& rows, std::vector<std::size_t> columns) : rows_(rows), columns_(std::move(columns)) {
    keys_.reserve(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::uint64_t key = 0;
      for (const std::size_t column : columns_) key = mixed(key, rows.variables(i)[column]);
      keys_.push_back({key, static_cast<std::uint32_t>(i)});
    }
    std::ranges::sort(keys_);
  }

  /// Calls visit(row) for those that agree, in order, until it returns false. Returns whether it never did.
  template <typename Visit>
  bool for_rows(std::span<const ClassId> values, const Visit& visit) const {
    std::uint64_t key = 0;
    for (const ClassId value : values) key = mixed(key, value);
    for (auto at = std::ranges::lower_bound(keys_, std::pair{key, std::uint32_t{0}});
         at != keys_.end() && at->first == key; ++at) {
      bool equal = true;
      for (std::size_t i = 0; i < columns_.size(); ++i)
        equal = equal && rows_.variables(at->second)[columns_[i]] == values[i];
      if (equal && !visit(at->second)) return false;
    }
    return true;
  }

 private:
  static std::uint64_t mixed(std::uint64_t key, ClassId value) {
    key = (key ^ value) * 0xff51afd7ed558ccdu;
    return key ^ key >> 31;
  }

  const Matches& rows_;
  std::vector<std::size_t> columns_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> keys_;
};

/// What is known of the rules before any iteration.
class Prepared {
 public:
  Prepared(std::span<const Rule> rules) {
    for (const Rule& rule : rules) {
      sources_.emplace_back();
      for (const Pattern& source : rule.sources) {
        Canonical each = canonical(source);
        const auto known =
            std::ranges::find_if(patterns_, [&](const Pattern& one) { return one == each.pattern; });
        const auto which = static_cast<std::size_t>(known - patterns_.begin());
        if (known == patterns_.end()) {
          matchers_.emplace_back(each.pattern, each.names.size());
          widths_.push_back(each.names.size());
          patterns_.push_back(std::move(each.pattern));
        }
        sources_.back().push_back({which, std::move(each.names)});
      }
      leaves_.push_back(leaves_of(rule));
    }
  }

  std::span<const Source> sources(std::size_t rule) const { return sources_[rule]; }
  std::span<const int> leaves(std::size_t rule) const { return leaves_[rule]; }
  std::size_t patterns() const { return matchers_.size(); }
  const Matcher& matcher(std::size_t pattern) const { return matchers_[pattern]; }
  std::size_t width(std::size_t pattern) const { return widths_[pattern]; }

 private:
  /// Variables below operators of the targets.
  static std::vector<int> leaves_of(const Rule& rule) {
    std::vector<int> found;
    for (const Pattern& target : rule.targets)
      for (const Pattern::Term& term : target.terms)
        if (!target.is_variable() && term.variable != Pattern::no_variable) found.push_back(term.variable);
    std::ranges::sort(found);
    found.erase(std::ranges::unique(found).begin(), found.end());
    return found;
  }

  std::vector<Pattern> patterns_;  // each canonical, once
  std::vector<Matcher> matchers_;
  std::vector<std::size_t> widths_;
  std::vector<std::vector<Source>> sources_;
  std::vector<std::vector<int>> leaves_;
};

/// When rules that find too much come back.
class Rests {
 public:
  Rests(std::size_t rules, std::size_t matches) : matches_(matches), rules_(rules) {}

  bool used() const { return matches_ != 0; }
  bool rests(std::size_t rule) const { return rules_[rule].until > iteration_; }
  /// More matches than these send a rule to rest.
  std::size_t most(std::size_t rule) const { return matches_ << rules_[rule].times; }
  void send(std::size_t rule) { rules_[rule].until = iteration_ + 1 + (5 << rules_[rule].times++); }
  void next() { ++iteration_; }
  /// Has the first of those that rest come back. Returns false where none does.
  bool wake() {
    int least = 0;
    for (const Rest& each : rules_)
      if (each.until > iteration_ && (least == 0 || each.until < least)) least = each.until;
    if (least == 0) return false;
    for (Rest& each : rules_) each.until -= least - iteration_;
    return true;
  }

 private:
  struct Rest {
    int until = 0, times = 0;
  };

  std::size_t matches_ = 0;
  std::vector<Rest> rules_;
  int iteration_ = 0;
};

/// One search and its applications.
class Round {
 public:
  Round(EGraph& graph, std::span<const Rule> rules, const Prepared& prepared, const Limits& limits,
        CycleFilter filter, Rests& rests, Clock::time_point begin, Iteration& report)
      : graph_(graph),
        rules_(rules),
        prepared_(prepared),
        limits_(limits),
        filter_(filter),
        rests_(rests),
        begin_(begin),
        report_(report) {}

  std::optional<Stop> stop() const { return stop_; }

  /// Rules of several sources take part where `multi` says so. Others look at what is new alone, where `new_ones` is given.
  void search(const Index& index, bool multi, Since* new_ones) {
    std::vector<std::optional<Matches>> found(prepared_.patterns());
    for (std::size_t i = 0; i < rules_.size() && !stop_; ++i) {
      places_.push_back({.sources = rules_[i].sources.size(),
                         .width = rules_[i].sources.size() + rules_[i].variables.size()});
      if (rules_[i].sources.size() > 1) {
        if (multi) join(index, i, found);
      } else if (!rests_.rests(i)) {
        const Source& source = prepared_.sources(i)[0];
        const Matcher& matcher = prepared_.matcher(source.pattern);
        if (new_ones != nullptr)
          new_ones->reach = rules_[i].condition ? matcher.reach_of_variables() : matcher.reach();
        Matches own(prepared_.width(source.pattern));
        const std::size_t most = rests_.used() ? std::min(rests_.most(i), limits_.matches) : limits_.matches;
        if (!matcher.search(index, own, most, new_ones)) {
          if (most == limits_.matches) {
            stop_ = Stop::matches;
          } else {
            rests_.send(i);
            own = Matches(prepared_.width(source.pattern));
          }
        }
        take(i, source, own);
      }
      if (seconds_since(begin_) > limits_.seconds) stop_ = Stop::seconds;
      report_.matches += places_.back().size();
    }
    if (filter_ == CycleFilter::efficient) mark_cyclic(index);
  }

  void apply() {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (nobody_asks()) {
        apply_all(i);
        if (stop_ == Stop::nodes || stop_ == Stop::seconds) return;
        continue;
      }
      for (std::size_t row = 0; row < places_[i].size(); ++row) {
        if (!places_[i].cyclic.empty() && places_[i].cyclic[row]) {
          ++report_.cyclic;
          continue;
        }
        apply(i, places_[i].roots(row), places_[i].variables(row));
        if (graph_.node_count() > limits_.nodes) stop_ = Stop::nodes;
        if (row % 256 == 0 && seconds_since(begin_) > limits_.seconds) stop_ = Stop::seconds;
        if (stop_ == Stop::nodes || stop_ == Stop::seconds) return;
      }
    }
  }

 private:
  void take(std::size_t rule, const Source& source, const Matches& own) {
    Places& places = places_.back();
    const Rule& each = rules_[rule];
    places.rows.reserve(own.size() * places.width);
    std::vector<ClassId> variables(each.variables.size());
    for (std::size_t row = 0; row < own.size(); ++row) {
      for (std::size_t k = 0; k < source.names.size(); ++k)
        variables[static_cast<std::size_t>(source.names[k])] = own.variables(row)[k];
      if (each.condition && !each.condition(graph_, variables)) continue;
      places.rows.push_back(own.root(row));
      places.rows.insert(places.rows.end(), variables.begin(), variables.end());
    }
  }

  /// Each row of the first source with each of the others that agrees on the variables that they share.
  void join(const Index& index, std::size_t rule, std::vector<std::optional<Matches>>& found) {
    const std::span<const Source> sources = prepared_.sources(rule);
    for (const Source& source : sources) {
      if (found[source.pattern]) continue;
      found[source.pattern].emplace(prepared_.width(source.pattern));
      if (!prepared_.matcher(source.pattern).search(index, *found[source.pattern], limits_.matches))
        stop_ = Stop::matches;
    }
    std::vector<std::optional<Join>> joins;
    std::vector<bool> bound(rules_[rule].variables.size(), false), symmetric;
    std::vector<std::vector<int>> shared;
    for (std::size_t s = 0; s < sources.size(); ++s) {
      std::vector<std::size_t> columns;
      shared.emplace_back();
      for (std::size_t k = 0; k < sources[s].names.size(); ++k)
        if (bound[static_cast<std::size_t>(sources[s].names[k])]) {
          columns.push_back(k);
          shared.back().push_back(sources[s].names[k]);
        }
      joins.emplace_back(std::in_place, *found[sources[s].pattern], std::move(columns));
      symmetric.push_back(s > 0 && are_symmetric(sources[s - 1], sources[s]));
      for (const int name : sources[s].names) bound[static_cast<std::size_t>(name)] = true;
    }
    std::vector<ClassId> row(places_.back().width);
    const auto descend = [&](const auto& self, std::size_t s, std::uint32_t last) -> bool {
      if (s == sources.size()) return take_row(rule, row);
      const Matches& own = *found[sources[s].pattern];
      std::vector<ClassId> values;
      for (const int name : shared[s]) values.push_back(row[sources.size() + static_cast<std::size_t>(name)]);
      return joins[s]->for_rows(values, [&](std::uint32_t which) {
        for (std::size_t before = 0; before < s; ++before)
          if (row[before] == own.root(which)) return true;
        row[s] = own.root(which);
        for (std::size_t k = 0; k < sources[s].names.size(); ++k)
          row[sources.size() + static_cast<std::size_t>(sources[s].names[k])] = own.variables(which)[k];
        if (symmetric[s] && which <= last && holds_exchanged(rule, s, row)) return true;
        return self(self, s + 1, which);
      });
    };
    if (!descend(descend, 0, 0)) stop_ = Stop::matches;
  }

  /// Whether two sources can be exchanged: the same pattern, with the variables that they share in the same places.
  static bool are_symmetric(const Source& a, const Source& b) {
    if (a.pattern != b.pattern) return false;
    for (std::size_t i = 0; i < a.names.size(); ++i)
      for (std::size_t k = 0; k < b.names.size(); ++k)
        if (a.names[i] == b.names[k] && i != k) return false;
    return true;
  }

  /// Whether the condition holds for the same with a source and the one before it exchanged: then that is taken, and this is not.
  bool holds_exchanged(std::size_t rule, std::size_t s, const std::vector<ClassId>& row) const {
    if (!rules_[rule].condition) return true;
    const std::span<const Source> sources = prepared_.sources(rule);
    std::vector<ClassId> variables(row.begin() + static_cast<std::ptrdiff_t>(sources.size()), row.end());
    const std::vector<ClassId> before = variables;
    for (std::size_t k = 0; k < sources[s].names.size(); ++k) {
      const auto a = static_cast<std::size_t>(sources[s - 1].names[k]),
                 b = static_cast<std::size_t>(sources[s].names[k]);
      variables[a] = before[b];
      variables[b] = before[a];
    }
    return rules_[rule].condition(graph_, variables);
  }

  bool take_row(std::size_t rule, const std::vector<ClassId>& row) {
    Places& places = places_.back();
    if (places.size() >= limits_.matches) return false;
    const std::span<const ClassId> variables = std::span(row).subspan(places.sources);
    if (!rules_[rule].condition || rules_[rule].condition(graph_, variables))
      places.rows.insert(places.rows.end(), row.begin(), row.end());
    return true;
  }

  void mark_cyclic(const Index& index) {
    const Clock::time_point begin = Clock::now();
    std::vector<Question> questions;
    for (std::size_t i = 0; i < places_.size(); ++i)
      for (std::size_t row = 0; row < places_[i].size(); ++row)
        for (const int leaf : prepared_.leaves(i))
          for (const ClassId root : places_[i].roots(row))
            questions.push_back({places_[i].variables(row)[static_cast<std::size_t>(leaf)], root});
    const std::vector<bool> answered = answers(index, questions);
    std::size_t next = 0;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      places_[i].cyclic.assign(places_[i].size(), false);
      for (std::size_t row = 0; row < places_[i].size(); ++row)
        for (std::size_t k = 0; k < prepared_.leaves(i).size() * places_[i].sources; ++k, ++next)
          if (answered[next] || questions[next].from == questions[next].to) places_[i].cyclic[row] = true;
    }
    report_.filter += seconds_since(begin);
  }

  bool closes_a_cycle(std::size_t rule, std::span<const ClassId> roots, std::span<const ClassId> variables) {
    const Clock::time_point begin = Clock::now();
    std::vector<ClassId> leaves;
    for (const int leaf : prepared_.leaves(rule)) leaves.push_back(variables[static_cast<std::size_t>(leaf)]);
    bool found = false;
    for (const ClassId leaf : leaves)
      for (const ClassId root : roots) found = found || graph_.find(leaf) == graph_.find(root);
    found = found || reaches(graph_, leaves, roots);
    report_.filter += seconds_since(begin);
    return found;
  }

  bool has_opinions() const { return graph_.analysis() != nullptr && graph_.analysis()->has_opinions(); }
  bool nobody_asks() const { return filter_ == CycleFilter::none && !has_opinions(); }

  /// Applies a rule wherever it was found, some places at a time.
  void apply_all(std::size_t rule) {
    const Places& places = places_[rule];
    constexpr std::size_t together = 32;
    std::vector<ClassId> made;
    for (std::size_t begin = 0; begin < places.size(); begin += together) {
      const std::size_t count = std::min(together, places.size() - begin);
      const auto rows = std::span(places.rows).subspan(begin * places.width, count * places.width);
      for (std::size_t s = 0; s < places.sources; ++s) {
        const NodeId before = graph_.nodes_made();
        made.clear();
        instantiate(graph_, rules_[rule].targets[s], rows, places.width, places.sources, made);
        std::size_t united = 0;
        for (std::size_t row = 0; row < count; ++row)
          united += graph_.unite(rows[row * places.width + s], made[row]);
        report_.applied += std::max<std::size_t>(united, graph_.nodes_made() != before);
      }
      if (graph_.node_count() > limits_.nodes) stop_ = Stop::nodes;
      if (begin % 1024 == 0 && seconds_since(begin_) > limits_.seconds) stop_ = Stop::seconds;
      if (stop_ == Stop::nodes || stop_ == Stop::seconds) return;
    }
  }

  void apply(std::size_t rule, std::span<const ClassId> roots, std::span<const ClassId> variables) {
    const Rule& each = rules_[rule];
    if (has_opinions()) {
      targets_.clear();
      equalities_.clear();
      for (std::size_t i = 0; i < roots.size(); ++i)
        equalities_.push_back(
            {graph_.find(roots[i]), targets_of(graph_, each.targets[i], variables, targets_)});
      if (!graph_.analysis()->admits(graph_, targets_, equalities_)) {
        ++report_.refused;
        return;
      }
    }
    if (filter_ == CycleFilter::vanilla && closes_a_cycle(rule, roots, variables)) {
      ++report_.cyclic;
      return;
    }
    const NodeId before = graph_.nodes_made();
    bool changed = false;
    for (std::size_t i = 0; i < roots.size(); ++i)
      if (graph_.unite(roots[i], instantiate(graph_, each.targets[i], variables))) changed = true;
    if (changed || graph_.nodes_made() != before) ++report_.applied;
  }

  EGraph& graph_;
  std::span<const Rule> rules_;
  const Prepared& prepared_;
  const Limits& limits_;
  CycleFilter filter_;
  Rests& rests_;
  Clock::time_point begin_;
  Iteration& report_;
  std::vector<Places> places_;
  std::vector<Target> targets_;
  std::vector<Equality> equalities_;
  std::optional<Stop> stop_;
};

/// What changed since a search: how many operators each node is above it, up to `most`.
std::vector<std::uint8_t> near(const EGraph& graph, std::vector<ClassId> here, int most) {
  std::vector<std::uint8_t> found(graph.nodes_made(), 0);
  std::vector<ClassId> above;
  for (int distance = 1; distance <= most && !here.empty(); ++distance) {
    above.clear();
    for (const ClassId each : here)
      graph.for_parents(each, [&](NodeId parent) {
        if (found[parent] != 0) return;
        found[parent] = static_cast<std::uint8_t>(distance);
        above.push_back(graph.class_of(parent));
      });
    here.swap(above);
  }
  return found;
}

}  // namespace

Saturation saturate(EGraph& graph, std::span<const Rule> rules, std::span<const ClassId> roots,
                    const Limits& limits, CycleFilter filter) {
  Saturation made{.stop = Stop::iterations};
  const Clock::time_point begin = Clock::now();
  const Prepared prepared(rules);
  int deepest = 0;
  for (std::size_t i = 0; i < prepared.patterns(); ++i)
    deepest = std::max(deepest, prepared.matcher(i).reach_of_variables());
  Rests rests(rules.size(), limits.resting);
  Since new_ones;
  std::vector<std::uint8_t> distances;
  graph.rebuild();
  for (int i = 0; i < limits.iterations; ++i) {
    Iteration& report = made.iterations.emplace_back();
    Round round(graph, rules, prepared, limits, filter, rests, begin, report);
    Clock::time_point part = Clock::now();
    // What a filter refused may be free of cycles later, and who rests misses what was new: then all is looked at each time.
    const bool all = i == 0 || filter != CycleFilter::none || rests.used();
    std::vector<ClassId> touched = graph.take_touched();
    if (!all) new_ones.near = distances = near(graph, std::move(touched), deepest);
    const NodeId nodes = graph.nodes_made();
    const ClassId classes = graph.classes_made();
    const bool multi = i < limits.multi_iterations;
    {
      const Index index(graph);
      round.search(index, multi, all ? nullptr : &new_ones);
    }
    report.search = seconds_since(part) - report.filter;
    const double filtered = report.filter;
    part = Clock::now();
    round.apply();
    report.apply = seconds_since(part) - (report.filter - filtered);
    part = Clock::now();
    graph.rebuild();
    report.rebuild = seconds_since(part);
    if (filter != CycleFilter::none) {
      part = Clock::now();
      report.broken = break_cycles(graph, roots);
      report.filter += seconds_since(part);
    }
    new_ones = {.node = nodes, .of = classes};
    report.nodes = graph.node_count();
    report.classes = graph.class_count();
    if (round.stop()) {
      made.stop = *round.stop();
      break;
    }
    rests.next();
    if (limits.reached && limits.reached(graph)) {
      made.stop = Stop::reached;
      break;
    }
    if (report.applied == 0 && report.broken == 0 && !rests.wake()) {
      made.stop = Stop::saturated;
      break;
    }
    if (seconds_since(begin) > limits.seconds) {
      made.stop = Stop::seconds;
      break;
    }
  }
  made.seconds = seconds_since(begin);
  return made;
}

}  // namespace tensat
