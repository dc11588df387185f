// tensat: each rule of tensors on shapes of chance, in doubles, by LibTorch on both sides, and whole graphs that were rewritten.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include "plugins/transform/tensat/extraction.hpp"
#include "plugins/transform/tensat/tensor_rules.hpp"

namespace tensat_rules_test {

using namespace tensat;
using Catch::Contains;

namespace {

using Random = std::mt19937_64;

std::int64_t one_of(Random& random, std::initializer_list<std::int64_t> all) {
  return all.begin()[random() % all.size()];
}

/// A tensor or a number, as an interpreter has it that knows nothing of shapes.cpp.
struct Computed {
  at::Tensor tensor;
  std::int64_t number = 0;
};

at::Tensor convolved(std::span<const Computed> of) {
  const at::Tensor &x = of[4].tensor, &w = of[5].tensor;
  const bool same = of[2].number == 0;
  const std::vector<std::int64_t> stride{of[0].number, of[1].number},
      pad{same ? (w.size(2) - 1) / 2 : 0, same ? (w.size(3) - 1) / 2 : 0};
  const std::vector<std::int64_t> dilation{1, 1};
  const at::Tensor y =
      at::conv2d(x, w, {}, at::IntArrayRef(stride), at::IntArrayRef(pad), dilation, x.size(1) / w.size(1));
  switch (of[3].number) {
    case 1: return y.sigmoid();
    case 2: return y.relu();
    case 3: return y.tanh();
  }
  return y;
}

at::Tensor pooled(bool most, std::span<const Computed> of) {
  const bool same = of[4].number == 0;
  const std::vector<std::int64_t> window{of[0].number, of[1].number}, stride{of[2].number, of[3].number},
      pad{same ? (window[0] - 1) / 2 : 0, same ? (window[1] - 1) / 2 : 0};
  return most ? at::max_pool2d(of[5].tensor, window, stride, pad)
              : at::avg_pool2d(of[5].tensor, window, stride, pad);
}

at::Tensor enlarged(const at::Tensor& w, const at::Tensor& like) {
  const std::int64_t up = (like.size(2) - w.size(2)) / 2, left = (like.size(3) - w.size(3)) / 2;
  return at::constant_pad_nd(w, {left, left, up, up});
}

/// Each group's channels stand where they are among those of its `count` groups.
at::Tensor with_fewer_groups(const at::Tensor& w, std::int64_t groups, std::int64_t count) {
  const std::int64_t own = w.size(1), outputs = w.size(0) / groups;
  at::Tensor made = at::zeros({w.size(0), own * count, w.size(2), w.size(3)}, w.options());
  for (std::int64_t output = 0; output < w.size(0); ++output)
    made[output].narrow(0, output / outputs % count * own, own).copy_(w[output]);
  return made;
}

at::Tensor compute(const std::string& op, std::span<const Computed> of) {
  if (op == "ewadd") return of[0].tensor + of[1].tensor;
  if (op == "ewmul") return of[0].tensor * of[1].tensor;
  if (op == "relu") return of[0].tensor.relu();
  if (op == "tanh") return of[0].tensor.tanh();
  if (op == "sigmoid") return of[0].tensor.sigmoid();
  if (op == "matmul") return at::matmul(of[0].tensor, of[1].tensor);
  if (op == "transpose") return of[0].tensor.transpose(-1, -2);
  if (op == "concat") return at::cat({of[1].tensor, of[2].tensor}, of[0].number);
  if (op == "conv2d") return convolved(of);
  if (op == "poolmax" || op == "poolavg") return pooled(op == "poolmax", of);
  if (op == "enlarge") return enlarged(of[0].tensor, of[1].tensor);
  if (op == "smul") return of[0].tensor * of[1].tensor;
  if (op == "merge")
    return with_fewer_groups(of[0].tensor, of[1].tensor.size(1) / of[0].tensor.size(1), of[2].number);
  const std::int64_t axis = of[0].number, size = of[1].tensor.size(axis),
                     part = of[2].tensor.size(of[3].number);
  if (op == "head") return of[1].tensor.narrow(axis, 0, part);
  if (op == "tail") return of[1].tensor.narrow(axis, size - part, part);
  throw std::logic_error(op);
}

at::Tensor drawn(const std::vector<std::int64_t>& shape, std::uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kDouble);
}

double error_of(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return 1e300;
  return ((a - b).abs().max() / a.abs().max().clamp_min(1e-30)).item<double>();
}

/// A rule of the table by itself, with what its variables stand for.
struct Proof {
  Symbols symbols;
  Rule rule;
  std::string condition, text;
  std::map<int, std::string> numbers;  // variables that are numbers, by what they say
  std::set<int> scalars;               // variables that are tensors of one number

  explicit Proof(const TensorRule& row) : condition(row.condition), text(row.text) {
    rule = parse_rule(row.name, row.text, symbols);
    for (const auto* const patterns : {&rule.sources, &rule.targets})
      for (const Pattern& pattern : *patterns)
        for (const Pattern::Term& term : pattern.terms) take_numbers(pattern, term);
  }

  void take_numbers(const Pattern& pattern, const Pattern::Term& term) {
    static const std::map<std::string, std::vector<std::string>> places = {
        {"conv2d", {"stride", "stride", "pad", "act"}},
        {"poolmax", {"window", "window", "stride", "stride", "pad"}},
        {"poolavg", {"window", "window", "stride", "stride", "pad"}},
        {"concat", {"axis"}},
        {"head", {"axis"}},
        {"tail", {"axis"}},
        {"merge", {"", "", "count"}},
        {"smul", {"", "scalar"}}};
    if (term.variable != Pattern::no_variable || !places.contains(symbols.name(term.op))) return;
    const std::vector<std::string>& words = places.at(symbols.name(term.op));
    for (std::size_t i = 0; i < words.size(); ++i) {
      const int variable = pattern.terms[static_cast<std::size_t>(term.children[i])].variable;
      if (variable == Pattern::no_variable || words[i].empty()) continue;
      if (words[i] == "scalar")
        scalars.insert(variable);
      else
        numbers[variable] = words[i];
    }
  }

  bool has(const char* op) const { return text.find(op) != std::string::npos; }

  /// Values of chance for the variables, often of shapes that go together.
  std::vector<Value> draw(Random& random) const {
    const auto activation = [&] {
      return std::vector<std::int64_t>{one_of(random, {1, 2, 3}), one_of(random, {1, 2, 4, 6}),
                                       one_of(random, {3, 4, 5, 7}), one_of(random, {3, 4, 6})};
    };
    const auto weight = [&] {
      return std::vector<std::int64_t>{one_of(random, {1, 2, 3, 4, 6}), one_of(random, {1, 1, 2, 4, 6}),
                                       one_of(random, {1, 2, 3}), one_of(random, {1, 2, 3, 5})};
    };
    const bool images = has("conv2d") || has("pool");
    const std::size_t rank = has("matmul") || has("transpose") ? 2 + random() % 4 / 3 : 2 + random() % 3;
    const auto any = [&] {
      if (images) return activation();
      std::vector<std::int64_t> shape(rank);
      for (std::int64_t& size : shape) size = one_of(random, {1, 2, 3});
      return shape;
    };
    const std::vector<std::int64_t> common = any(), common_weight = weight();
    std::vector<Value> made;
    for (std::size_t i = 0; i < rule.variables.size(); ++i) {
      if (const auto word = numbers.find(static_cast<int>(i)); word != numbers.end()) {
        const std::int64_t number = word->second == "stride"   ? one_of(random, {1, 2})
                                    : word->second == "pad"    ? one_of(random, {0, 1})
                                    : word->second == "act"    ? one_of(random, {0, 1, 2, 3})
                                    : word->second == "window" ? one_of(random, {1, 2, 3})
                                    : word->second == "count"  ? one_of(random, {2, 3})
                                                               : one_of(random, {0, 1, 2, 3});
        made.push_back({.kind = Value::Kind::number, .number = number});
        continue;
      }
      if (scalars.contains(static_cast<int>(i))) {
        made.push_back({.kind = Value::Kind::tensor, .shape = {1}});
        continue;
      }
      const bool is_weight = has("conv2d") && (rule.variables[i] == "?v" || rule.variables[i] == "?w");
      std::vector<std::int64_t> shape = is_weight ? common_weight : common;
      const std::vector<std::int64_t> other = is_weight ? weight() : any();
      for (std::size_t k = 0; k < shape.size(); ++k)
        if (random() % 4 == 0) shape[k] = other[k];
      made.push_back({.kind = Value::Kind::tensor, .shape = shape});
    }
    return made;
  }

  std::optional<Value> shape_of(const Pattern& pattern, std::span<const Value> variables) const {
    std::vector<Value> made;
    for (const Pattern::Term& term : pattern.terms) {
      std::vector<Value> children;
      for (const int child : term.children) children.push_back(made[static_cast<std::size_t>(child)]);
      auto value = term.variable != Pattern::no_variable
                       ? std::optional(variables[static_cast<std::size_t>(term.variable)])
                       : infer(symbols.name(term.op), children);
      if (!value) return std::nullopt;
      made.push_back(std::move(*value));
    }
    return made.back();
  }

  at::Tensor computed(const Pattern& pattern, std::span<const Computed> variables) const {
    std::vector<Computed> made;
    for (const Pattern::Term& term : pattern.terms) {
      std::vector<Computed> children;
      for (const int child : term.children) children.push_back(made[static_cast<std::size_t>(child)]);
      if (term.variable != Pattern::no_variable)
        made.push_back(variables[static_cast<std::size_t>(term.variable)]);
      else if (children.empty())
        made.push_back({.number = std::stol(symbols.name(term.op))});
      else
        made.push_back({.tensor = compute(symbols.name(term.op), children)});
    }
    return made.back().tensor;
  }
};

struct Tried {
  int held = 0, refused = 0, grouped = 0, depthwise = 0, strided = 0, even = 0, shapes_differ = 0;
  double worst = 0.0, without = 0.0;  // errors where it holds; where the condition refuses
};

/// Draws until a rule was computed so often.
Tried tried(const Proof& proof, int wanted, std::uint64_t seed) {
  Random random(seed);
  Tried made;
  for (int attempt = 0; attempt < 400'000 && made.held < wanted; ++attempt) {
    const std::vector<Value> values = proof.draw(random);
    bool whole = true;
    for (std::size_t i = 0; i < proof.rule.sources.size() && whole; ++i) {
      const auto source = proof.shape_of(proof.rule.sources[i], values);
      if (!source) {
        whole = false;
        break;
      }
      const auto target = proof.shape_of(proof.rule.targets[i], values);
      whole = target && target->shape == source->shape;
    }
    if (!whole) continue;
    const bool held = holds(proof.condition, proof.rule.variables, values);
    if (!held && ++made.refused > 50) continue;
    made.held += held;
    std::vector<Computed> variables;
    for (const Value& value : values)
      variables.push_back(value.kind == Value::Kind::number
                              ? Computed{.number = value.number}
                              : Computed{.tensor = drawn(value.shape, random())});
    for (std::size_t i = 0; i < proof.rule.sources.size(); ++i) {
      const at::Tensor source = proof.computed(proof.rule.sources[i], variables),
                       target = proof.computed(proof.rule.targets[i], variables);
      made.shapes_differ +=
          source.sizes() != at::IntArrayRef(proof.shape_of(proof.rule.sources[i], values)->shape);
      double& worst = held ? made.worst : made.without;
      worst = std::max(worst, error_of(source, target));
    }
    if (!held || !proof.has("conv2d")) continue;
    const auto variable = [&](const char* name) -> const Value* {
      const auto known = std::ranges::find(proof.rule.variables, name);
      return known != proof.rule.variables.end()
                 ? &values[static_cast<std::size_t>(known - proof.rule.variables.begin())]
                 : nullptr;
    };
    const Value &x = *variable("?x"), &w = *variable(variable("?v") != nullptr ? "?v" : "?w");
    made.grouped += x.shape[1] > w.shape[1];
    made.depthwise += w.shape[1] == 1 && x.shape[1] > 1;
    made.strided += variable("?s")->number == 2;
    made.even += w.shape[2] % 2 == 0;
  }
  return made;
}

const TensorRule& row_of(std::string_view name) {
  return *std::ranges::find(tensor_rules(), name, &TensorRule::name);
}

}  // namespace

TEST_CASE("tensat rules: each holds on 200 shapes, and is wrong without its condition") {
  const int wanted = std::getenv("TRAINYARD_LONGER") != nullptr ? 2000 : 200;
  std::uint64_t seed = 0;
  for (const TensorRule& row : tensor_rules()) {
    const Proof proof(row);
    const Tried made = tried(proof, wanted, ++seed);
    INFO(row.name << ": " << made.held << " held, " << made.refused << " refused, worst " << made.worst
                  << ", without its condition " << made.without << "; grouped " << made.grouped
                  << ", depthwise " << made.depthwise << ", strided " << made.strided << ", even "
                  << made.even);
    CHECK(made.held == wanted);
    CHECK(made.worst <= 1e-10);
    CHECK(made.shapes_differ == 0);
    const bool dense = row.condition.find("dense") != std::string_view::npos;
    // `narrow` is about what pays, the others about what is right.
    if (!row.condition.empty() && !row.condition.starts_with("narrow")) CHECK(made.without > 1e-3);
    if (!proof.has("conv2d")) continue;
    CHECK(made.strided >= 10);
    CHECK((made.even >= 10) == !proof.has("enlarge"));
    CHECK((made.grouped >= 10) == !dense);
    CHECK((made.depthwise >= 10) == !dense);
  }
  CHECK(tensor_rules().size() > 100);
}

TEST_CASE("tensat rules: what shipped tables get wrong for groups is refused") {
  const auto values_of = [](const Proof& proof,
                            const std::map<std::string, std::vector<std::int64_t>>& shapes) {
    std::vector<Value> values;
    for (const std::string& name : proof.rule.variables) {
      const auto shape = shapes.find(name);
      values.push_back(shape != shapes.end() ? Value{.kind = Value::Kind::tensor, .shape = shape->second}
                                             : Value{.kind = Value::Kind::number,
                                                     .number = name == "?s" || name == "?t" ? 1 : 0});
    }
    return values;
  };
  const auto error = [&](const Proof& proof, const std::vector<Value>& values) {
    std::vector<Computed> variables;
    std::uint64_t seed = 1;
    for (const Value& value : values)
      variables.push_back(value.kind == Value::Kind::number ? Computed{.number = value.number}
                                                            : Computed{.tensor = drawn(value.shape, ++seed)});
    return error_of(proof.computed(proof.rule.sources[0], variables),
                    proof.computed(proof.rule.targets[0], variables));
  };
  struct Case {
    const char* rule;
    std::map<std::string, std::vector<std::int64_t>> shapes;
    bool right;
  };
  const std::vector<std::int64_t> x{2, 4, 5, 5}, dense{6, 4, 3, 3}, depthwise{4, 1, 3, 3};
  const Case cases[] = {
      {"add of conv, inner", {{"?x", x}, {"?y", x}, {"?v", dense}, {"?w", dense}}, true},
      {"add of conv, inner", {{"?x", x}, {"?y", x}, {"?v", depthwise}, {"?w", depthwise}}, false},
      {"concat of conv, groups", {{"?x", x}, {"?y", x}, {"?v", dense}, {"?w", dense}}, true},
      {"concat of conv, groups", {{"?x", x}, {"?y", x}, {"?v", dense}, {"?w", {2, 4, 3, 3}}}, false},
      {"concat of conv, groups", {{"?x", x}, {"?y", x}, {"?v", depthwise}, {"?w", depthwise}}, true},
      {"concat of conv, outputs", {{"?x", x}, {"?v", dense}, {"?w", dense}}, true},
      {"concat of conv, outputs", {{"?x", x}, {"?v", depthwise}, {"?w", depthwise}}, false},
  };
  for (const Case& each : cases) {
    const Proof proof(row_of(each.rule));
    const std::vector<Value> values = values_of(proof, each.shapes);
    // Shapes alone say nothing against it.
    CHECK(proof.shape_of(proof.rule.sources[0], values)->shape ==
          proof.shape_of(proof.rule.targets[0], values)->shape);
    INFO(each.rule);
    if (each.right)
      CHECK(error(proof, values) < 1e-12);
    else
      CHECK(error(proof, values) > 0.3);
    CHECK(holds(proof.condition, proof.rule.variables, values) == each.right);
  }
  // Kernels of even sizes have no middle to be enlarged around.
  const Value even{.kind = Value::Kind::tensor, .shape = {4, 4, 2, 2}},
      odd{.kind = Value::Kind::tensor, .shape = {4, 4, 3, 3}};
  CHECK_FALSE(infer("enlarge", std::vector{even, odd}));
  CHECK_FALSE(infer("enlarge", std::vector{odd, even}));
  CHECK(infer("enlarge", std::vector{odd, odd}));
}

namespace {

/// A graph of chance: operators that can be made of what is there, until there are so many.
ClassId random_graph(EGraph& graph, const Shapes& shapes, Random& random, bool images) {
  const auto leaf = [&](const char* op, const std::string& name) {
    return graph.add_term(std::string("(") + op + " " + name + ")");
  };
  std::vector<ClassId> tensors;
  if (images) {
    tensors = {leaf("input", "x@2_4_5_5"),  leaf("input", "y@2_4_5_5"),  leaf("weight", "a@4_4_3_3"),
               leaf("weight", "b@4_4_1_1"), leaf("weight", "c@4_1_3_3"), leaf("weight", "d@4_4_3_3")};
  } else {
    tensors = {leaf("input", "x@3_4"), leaf("input", "y@3_4"), leaf("weight", "a@4_4"),
               leaf("weight", "b@4_4"), leaf("weight", "c@4_4")};
  }
  const std::vector<std::string> names =
      images ? std::vector<std::string>{"conv2d", "conv2d", "conv2d",  "ewadd",
                                        "relu",   "ewmul",  "poolmax", "tanh"}
             : std::vector<std::string>{"matmul", "matmul", "matmul", "ewadd",
                                        "ewmul",  "relu",   "tanh",   "transpose"};
  const std::size_t leaves = tensors.size();
  for (int attempt = 0; tensors.size() < leaves + 9 && attempt < 2000; ++attempt) {
    const std::string& op = names[random() % names.size()];
    const auto any = [&] { return tensors[random() % tensors.size()]; };
    const auto number = [&](std::initializer_list<std::int64_t> all) {
      return graph.add_term(std::to_string(one_of(random, all)));
    };
    std::vector<ClassId> children;
    if (op == "conv2d")
      children = {number({1}),
                  number({1}),
                  number({0}),
                  number({0, 0, 2}),
                  tensors[random() % 2 == 0 ? random() % 2 : random() % tensors.size()],
                  any()};
    else if (op == "poolmax")
      children = {number({3}), number({3}), number({1}), number({1}), number({0}), any()};
    else if (op == "matmul")
      children = {tensors[random() % 2 == 0 ? random() % 2 : random() % tensors.size()], any()};
    else
      children = op.starts_with("ew") ? std::vector{any(), any()} : std::vector{any()};
    std::vector<Value> values;
    for (const ClassId child : children) values.push_back(shapes.of(graph, child));
    if (infer(op, values)) tensors.push_back(graph.add(graph.symbols.of(op), children));
  }
  // What nothing uses is joined to one root, by tuples that no rule knows.
  ClassId root = tensors[leaves];
  for (std::size_t i = leaves + 1; i < tensors.size(); ++i) {
    std::vector<Value> both{shapes.of(graph, root), shapes.of(graph, tensors[i])};
    if (infer("ewadd", both)) root = graph.add(graph.symbols.of("ewadd"), std::vector{root, tensors[i]});
  }
  return root;
}

/// What a selection computes from leaves that their names draw.
at::Tensor evaluated(const EGraph& graph, const Extractable& made, const Selection& selection) {
  std::map<std::uint32_t, Computed> values;
  std::map<std::uint32_t, std::string> names;
  std::map<ClassId, std::uint32_t> number;
  for (std::uint32_t of = 0; of < made.classes.size(); ++of) number[made.classes[of]] = of;
  for (const std::uint32_t of : selection.order) {
    const NodeId node = made.nodes[static_cast<std::size_t>(selection.choice[of])];
    const std::string& op = graph.symbols.name(graph.op(node));
    std::vector<Computed> children;
    for (const ClassId child : graph.children(node)) children.push_back(values.at(number.at(child)));
    if (children.empty()) {
      names[of] = op;
      values[of] = {.number = op.find('@') == std::string::npos ? std::stol(op) : 0};
    } else if (op == "input" || op == "weight") {
      const std::string& name = names.at(number.at(graph.children(node)[0]));
      std::vector<std::int64_t> shape;
      for (std::size_t at = name.find('@'); at != std::string::npos; at = name.find('_', at + 1))
        shape.push_back(std::stol(name.substr(at + 1)));
      values[of] = {.tensor = drawn(shape, std::hash<std::string>{}(name))};
    } else {
      values[of] = {.tensor = compute(op, children)};
    }
  }
  return values.at(made.problem.roots[0]).tensor;
}

}  // namespace

TEST_CASE("tensat rules: graphs that were rewritten compute what they did, whatever is chosen") {
  int other = 0;
  const int seeds = std::getenv("TRAINYARD_LONGER") != nullptr ? 1000 : 100;
  for (int seed = 0; seed < seeds; ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    Shapes shapes;
    EGraph graph(&shapes);
    const std::vector<ClassId> roots{random_graph(graph, shapes, random, seed % 2 == 0)};
    graph.rebuild();
    graph.seal_input();
    const std::vector<double> flat(graph.nodes_made(), 1.0);
    const Extractable before = problem_of(graph, roots, flat);
    const at::Tensor expected = evaluated(graph, before, *verified(before.problem, before.input));
    const auto filter = seed % 4 < 2 ? CycleFilter::efficient : CycleFilter::vanilla;
    saturate(graph, rules_of(graph, shapes), roots,
             {.nodes = 3000, .iterations = 4, .multi_iterations = 1 + seed % 2}, filter);
    INFO("seed " << seed << ": " << graph.node_count() << " nodes");
    // Costs of chance have each form of an equal tensor chosen at some time.
    for (int choice = 0; choice < 5; ++choice) {
      std::vector<double> costs(graph.nodes_made());
      for (double& cost : costs) cost = static_cast<double>(random() % 1000);
      const Extractable after = problem_of(graph, roots, costs);
      const Extraction found =
          extract(after.problem, choice == 0 && seed % 10 == 0 ? Extractor::ilp : Extractor::greedy_dag,
                  {.seconds = 0.5}, &after.input);
      CHECK(error_of(expected, evaluated(graph, after, found.best)) < 1e-9);
      other += found.from != "input";
    }
  }
  CHECK(other > seeds * 3);
}

TEST_CASE("tensat rules: what TENSAT's table of one source says follows from these") {
  const char* const data = std::getenv("TRAINYARD_DATA");
  std::ifstream file(std::string(data != nullptr ? data : "") + "/compiler/graph_rules/tensat_converted.txt");
  if (!file) {
    WARN("skipped: TRAINYARD_DATA/compiler/graph_rules has no tensat_converted.txt");
    return;
  }
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    const std::size_t arrow = line.find("=>");
    if (arrow == std::string::npos) continue;
    ++count;
    const bool images =
        line.find("conv2d") != std::string::npos || std::regex_search(line, std::regex("concat . 4"));
    const auto translated = [&](std::string text) {
      text = std::regex_replace(text, std::regex("matmul 0 "), "matmul ");
      text = std::regex_replace(text, std::regex("concat (.) . "), "concat $1 ");
      return std::regex_replace(text, std::regex("\\?input_(\\d+)"),
                                images ? "(input i$1@3_3_3_3)" : "(input i$1@4_4)");
    };
    Shapes shapes;
    EGraph graph(&shapes);
    const ClassId from = graph.add_term(translated(line.substr(0, arrow))),
                  to = graph.add_term(translated(line.substr(arrow + 2)));
    const auto reached = [&](const EGraph& now) { return now.find(from) == now.find(to); };
    saturate(graph, rules_of(graph, shapes), {},
             {.nodes = 20'000, .iterations = 8, .multi_iterations = 0, .reached = reached},
             CycleFilter::none);
    INFO(line << ": " << graph.node_count() << " nodes");
    CHECK(reached(graph));
  }
  CHECK(count == 120);
}

TEST_CASE("tensat rules: shapes that do not go together are said") {
  Shapes shapes;
  EGraph graph(&shapes);
  graph.add_term("(input x@2_3)");
  CHECK_THROWS_WITH(graph.add_term("(matmul (input x@2_3) (input x@2_3))"),
                    "matmul cannot be made of [2, 3], [2, 3]");
  Shapes others;
  EGraph fresh(&others);
  CHECK_THROWS_WITH(fresh.add_term("(input x)"), "input cannot be made of a name");
  Shapes third;
  EGraph unequal(&third);
  const ClassId a = unequal.add_term("(input x@2_3)"), b = unequal.add_term("(input y@3_2)");
  CHECK_THROWS_WITH(unequal.unite(a, b), "tensors of [2, 3] and [3, 2] are said to be equal");
  CHECK_THROWS_WITH(holds("dence ?x ?w", std::vector<std::string>{"?x", "?w"}, std::vector<Value>(2)),
                    "'dence ?x ?w' is no condition");
  CHECK_THROWS_WITH(holds("dense ?x ?z", std::vector<std::string>{"?x", "?w"}, std::vector<Value>(2)),
                    "'dense ?x ?z' is no condition");
}

TEST_CASE("tensat rules: what follows from weights alone is known") {
  Shapes shapes;
  EGraph graph(&shapes);
  const ClassId both = graph.add_term("(concat 1 (weight a@2_3) (weight b@2_4))"),
                one = graph.add_term("(matmul (input x@5_2) (weight a@2_3))");
  CHECK(shapes.of(graph, both).weights);
  CHECK(shapes.of(graph, both).shape == std::vector<std::int64_t>{2, 7});
  CHECK_FALSE(shapes.of(graph, one).weights);
  // It comes to those above, once an equal one does.
  const ClassId above = graph.add_term("(relu (input y@2_3))"),
                highest = graph.add_term("(tanh (transpose (relu (input y@2_3))))");
  graph.unite(graph.add_term("(input y@2_3)"), graph.add_term("(weight a@2_3)"));
  graph.rebuild();
  CHECK(shapes.of(graph, above).weights);
  CHECK(shapes.of(graph, highest).weights);
}

TEST_CASE("tensat rules: a target of another shape, or of none, is refused") {
  const auto run = [](const char* term, const char* rule) {
    Shapes shapes;
    EGraph graph(&shapes);
    graph.add_term(term);
    const std::vector<Rule> rules{parse_rule("rule", rule, graph.symbols)};
    const std::size_t before = graph.node_count();
    const Saturation report = saturate(graph, rules, {}, {.iterations = 1}, CycleFilter::none);
    return std::vector{report.iterations[0].matches, report.iterations[0].refused,
                       graph.node_count() - before};
  };
  using Counts = std::vector<std::size_t>;
  const char* const product = "(matmul (input x@2_3) (weight w@3_2))";
  CHECK(run(product, "(matmul ?a ?b) => (matmul ?b ?a)") == Counts{1, 1, 0});
  CHECK(run(product, "(matmul ?a ?b) => (relu (matmul ?a ?b))") == Counts{1, 0, 1});
  CHECK(run(product, "(matmul ?a ?b) => (ewadd ?a ?b)") == Counts{1, 1, 0});
  CHECK(run(product, "(matmul ?a ?b) => (relu (ewadd ?a ?b))") == Counts{1, 1, 0});
  // Of a name, of its tensor, and of a name that is nothing else.
  CHECK(run("(input x@2_3)", "?a => (relu ?a)") == Counts{2, 1, 1});
  CHECK(run("name", "?a => (relu ?a)") == Counts{1, 1, 0});
}

}  // namespace tensat_rules_test
