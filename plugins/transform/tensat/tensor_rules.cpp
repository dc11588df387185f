#include "tensor_rules.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace tensat {
namespace {

constexpr TensorRule table[] = {
    {"add commutes", "(ewadd ?a ?b) => (ewadd ?b ?a)", ""},
    {"add associates", "(ewadd ?a (ewadd ?b ?c)) => (ewadd (ewadd ?a ?b) ?c)", ""},
    {"mul commutes", "(ewmul ?a ?b) => (ewmul ?b ?a)", ""},
    {"mul associates", "(ewmul ?a (ewmul ?b ?c)) => (ewmul (ewmul ?a ?b) ?c)", ""},
    {"mul over add", "(ewmul ?a (ewadd ?b ?c)) => (ewadd (ewmul ?a ?b) (ewmul ?a ?c))", ""},
    {"mul out of add", "(ewadd (ewmul ?a ?b) (ewmul ?a ?c)) => (ewmul ?a (ewadd ?b ?c))", ""},

    {"matmul associates", "(matmul ?a (matmul ?b ?c)) => (matmul (matmul ?a ?b) ?c)", ""},
    {"matmul associates back", "(matmul (matmul ?a ?b) ?c) => (matmul ?a (matmul ?b ?c))", ""},
    {"matmul over add", "(matmul ?x (ewadd ?a ?b)) => (ewadd (matmul ?x ?a) (matmul ?x ?b))", ""},
    {"matmul out of add", "(ewadd (matmul ?x ?a) (matmul ?x ?b)) => (matmul ?x (ewadd ?a ?b))", ""},
    {"add under matmul", "(matmul (ewadd ?x ?y) ?a) => (ewadd (matmul ?x ?a) (matmul ?y ?a))", ""},
    {"add out of matmul", "(ewadd (matmul ?x ?a) (matmul ?y ?a)) => (matmul (ewadd ?x ?y) ?a)", ""},
    {"transpose twice", "(transpose (transpose ?a)) => ?a", ""},
    {"transpose of matmul", "(transpose (matmul ?a ?b)) => (matmul (transpose ?b) (transpose ?a))", ""},
    {"matmul of transposes", "(matmul (transpose ?b) (transpose ?a)) => (transpose (matmul ?a ?b))", ""},
    {"transpose of add", "(transpose (ewadd ?a ?b)) => (ewadd (transpose ?a) (transpose ?b))", ""},
    {"add of transposes", "(ewadd (transpose ?a) (transpose ?b)) => (transpose (ewadd ?a ?b))", ""},
    {"transpose of mul", "(transpose (ewmul ?a ?b)) => (ewmul (transpose ?a) (transpose ?b))", ""},
    {"mul of transposes", "(ewmul (transpose ?a) (transpose ?b)) => (transpose (ewmul ?a ?b))", ""},
    {"transpose of relu", "(transpose (relu ?a)) => (relu (transpose ?a))", ""},
    {"relu of transpose", "(relu (transpose ?a)) => (transpose (relu ?a))", ""},

    {"conv over weights",
     "(conv2d ?s ?t ?p 0 ?x (ewadd ?v ?w)) => (ewadd (conv2d ?s ?t ?p 0 ?x ?v) (conv2d ?s ?t ?p 0 ?x ?w))",
     ""},
    {"conv out of weights",
     "(ewadd (conv2d ?s ?t ?p 0 ?x ?v) (conv2d ?s ?t ?p 0 ?x ?w)) => (conv2d ?s ?t ?p 0 ?x (ewadd ?v ?w))",
     ""},
    {"conv over inputs",
     "(conv2d ?s ?t ?p 0 (ewadd ?x ?y) ?w) => (ewadd (conv2d ?s ?t ?p 0 ?x ?w) (conv2d ?s ?t ?p 0 ?y ?w))",
     ""},
    {"conv out of inputs",
     "(ewadd (conv2d ?s ?t ?p 0 ?x ?w) (conv2d ?s ?t ?p 0 ?y ?w)) => (conv2d ?s ?t ?p 0 (ewadd ?x ?y) ?w)",
     ""},
    {"relu into conv", "(relu (conv2d ?s ?t ?p 0 ?x ?w)) => (conv2d ?s ?t ?p 2 ?x ?w)", ""},
    {"relu out of conv", "(conv2d ?s ?t ?p 2 ?x ?w) => (relu (conv2d ?s ?t ?p 0 ?x ?w))", ""},
    {"tanh into conv", "(tanh (conv2d ?s ?t ?p 0 ?x ?w)) => (conv2d ?s ?t ?p 3 ?x ?w)", ""},
    {"tanh out of conv", "(conv2d ?s ?t ?p 3 ?x ?w) => (tanh (conv2d ?s ?t ?p 0 ?x ?w))", ""},
    {"sigmoid into conv", "(sigmoid (conv2d ?s ?t ?p 0 ?x ?w)) => (conv2d ?s ?t ?p 1 ?x ?w)", ""},
    {"sigmoid out of conv", "(conv2d ?s ?t ?p 1 ?x ?w) => (sigmoid (conv2d ?s ?t ?p 0 ?x ?w))", ""},

    {"concat of relu", "(concat ?i (relu ?a) (relu ?b)) => (relu (concat ?i ?a ?b))", ""},
    {"relu of concat", "(relu (concat ?i ?a ?b)) => (concat ?i (relu ?a) (relu ?b))", ""},
    {"concat of tanh", "(concat ?i (tanh ?a) (tanh ?b)) => (tanh (concat ?i ?a ?b))", ""},
    {"tanh of concat", "(tanh (concat ?i ?a ?b)) => (concat ?i (tanh ?a) (tanh ?b))", ""},
    {"concat of sigmoid", "(concat ?i (sigmoid ?a) (sigmoid ?b)) => (sigmoid (concat ?i ?a ?b))", ""},
    {"sigmoid of concat", "(sigmoid (concat ?i ?a ?b)) => (concat ?i (sigmoid ?a) (sigmoid ?b))", ""},
    {"concat of add",
     "(concat ?i (ewadd ?a ?b) (ewadd ?c ?d)) => (ewadd (concat ?i ?a ?c) (concat ?i ?b ?d))", ""},
    {"add of concat",
     "(ewadd (concat ?i ?a ?c) (concat ?i ?b ?d)) => (concat ?i (ewadd ?a ?b) (ewadd ?c ?d))", ""},
    {"concat of mul",
     "(concat ?i (ewmul ?a ?b) (ewmul ?c ?d)) => (ewmul (concat ?i ?a ?c) (concat ?i ?b ?d))", ""},
    {"mul of concat",
     "(ewmul (concat ?i ?a ?c) (concat ?i ?b ?d)) => (concat ?i (ewmul ?a ?b) (ewmul ?c ?d))", ""},
    {"concat of concat",
     "(concat ?i (concat ?j ?a ?b) (concat ?j ?c ?d)) => (concat ?j (concat ?i ?a ?c) (concat ?i ?b ?d))",
     "unlike ?i ?j"},
    {"concat associates", "(concat ?i ?a (concat ?i ?b ?c)) => (concat ?i (concat ?i ?a ?b) ?c)", ""},
    {"concat associates back", "(concat ?i (concat ?i ?a ?b) ?c) => (concat ?i ?a (concat ?i ?b ?c))", ""},
    {"head of concat", "(head ?i (concat ?i ?a ?b) ?a ?i) => ?a", ""},
    {"tail of concat", "(tail ?i (concat ?i ?a ?b) ?b ?i) => ?b", ""},

    {"concat of matmul, columns", "(concat 1 (matmul ?x ?a) (matmul ?x ?b)) => (matmul ?x (concat 1 ?a ?b))",
     ""},
    {"matmul of concat, columns", "(matmul ?x (concat 1 ?a ?b)) => (concat 1 (matmul ?x ?a) (matmul ?x ?b))",
     ""},
    {"concat of matmul, rows", "(concat 0 (matmul ?x ?a) (matmul ?y ?a)) => (matmul (concat 0 ?x ?y) ?a)",
     ""},
    {"matmul of concat, rows", "(matmul (concat 0 ?x ?y) ?a) => (concat 0 (matmul ?x ?a) (matmul ?y ?a))",
     ""},
    {"add of matmul, inner",
     "(ewadd (matmul ?x ?a) (matmul ?y ?b)) => (matmul (concat 1 ?x ?y) (concat 0 ?a ?b))", ""},
    {"matmul of concat, inner",
     "(matmul (concat 1 ?x ?y) (concat 0 ?a ?b)) => (ewadd (matmul ?x ?a) (matmul ?y ?b))", ""},

    {"concat of conv, batch",
     "(concat 0 (conv2d ?s ?t ?p ?f ?x ?w) (conv2d ?s ?t ?p ?f ?y ?w)) => (conv2d ?s ?t ?p ?f (concat 0 ?x "
     "?y) ?w)",
     ""},
    {"conv of concat, batch",
     "(conv2d ?s ?t ?p ?f (concat 0 ?x ?y) ?w) => (concat 0 (conv2d ?s ?t ?p ?f ?x ?w) (conv2d ?s ?t ?p ?f "
     "?y ?w))",
     ""},
    {"concat of conv, outputs",
     "(concat 1 (conv2d ?s ?t ?p ?f ?x ?v) (conv2d ?s ?t ?p ?f ?x ?w)) => (conv2d ?s ?t ?p ?f ?x (concat 0 "
     "?v ?w))",
     "dense ?x ?v"},
    {"conv of concat, outputs",
     "(conv2d ?s ?t ?p ?f ?x (concat 0 ?v ?w)) => (concat 1 (conv2d ?s ?t ?p ?f ?x ?v) (conv2d ?s ?t ?p ?f "
     "?x ?w))",
     "dense ?x ?v"},
    {"concat of conv, groups",
     "(concat 1 (conv2d ?s ?t ?p ?f ?x ?v) (conv2d ?s ?t ?p ?f ?y ?w)) => (conv2d ?s ?t ?p ?f (concat 1 ?x "
     "?y) (concat 0 ?v ?w))",
     "equal ?x 1 ?y 1; equal ?v 0 ?w 0"},
    {"conv of concat, groups",
     "(conv2d ?s ?t ?p ?f (concat 1 ?x ?y) (concat 0 ?v ?w)) => (concat 1 (conv2d ?s ?t ?p ?f ?x ?v) (conv2d "
     "?s ?t ?p ?f ?y ?w))",
     "equal ?x 1 ?y 1; equal ?v 0 ?w 0"},
    {"add of conv, inner",
     "(ewadd (conv2d ?s ?t ?p 0 ?x ?v) (conv2d ?s ?t ?p 0 ?y ?w)) => (conv2d ?s ?t ?p 0 (concat 1 ?x ?y) "
     "(concat 1 ?v ?w))",
     "dense ?x ?v; dense ?y ?w"},
    {"conv of concat, inner",
     "(conv2d ?s ?t ?p 0 (concat 1 ?x ?y) (concat 1 ?v ?w)) => (ewadd (conv2d ?s ?t ?p 0 ?x ?v) (conv2d ?s "
     "?t ?p 0 ?y ?w))",
     "dense ?x ?v; dense ?y ?w"},

    {"concat of poolmax",
     "(concat 1 (poolmax ?h ?k ?s ?t ?p ?x) (poolmax ?h ?k ?s ?t ?p ?y)) => (poolmax ?h ?k ?s ?t ?p (concat "
     "1 ?x ?y))",
     ""},
    {"poolmax of concat",
     "(poolmax ?h ?k ?s ?t ?p (concat 1 ?x ?y)) => (concat 1 (poolmax ?h ?k ?s ?t ?p ?x) (poolmax ?h ?k ?s "
     "?t ?p ?y))",
     ""},
    {"concat of poolavg",
     "(concat 1 (poolavg ?h ?k ?s ?t ?p ?x) (poolavg ?h ?k ?s ?t ?p ?y)) => (poolavg ?h ?k ?s ?t ?p (concat "
     "1 ?x ?y))",
     ""},
    {"poolavg of concat",
     "(poolavg ?h ?k ?s ?t ?p (concat 1 ?x ?y)) => (concat 1 (poolavg ?h ?k ?s ?t ?p ?x) (poolavg ?h ?k ?s "
     "?t ?p ?y))",
     ""},

    {"smul associates", "(smul (smul ?a ?y) ?z) => (smul ?a (smul ?y ?z))", ""},
    {"smul associates back", "(smul ?a (smul ?y ?z)) => (smul (smul ?a ?y) ?z)", ""},
    {"smul commutes", "(smul (smul ?a ?y) ?z) => (smul (smul ?a ?z) ?y)", ""},
    {"smul of add", "(smul (ewadd ?a ?b) ?z) => (ewadd (smul ?a ?z) (smul ?b ?z))", ""},
    {"add of smul", "(ewadd (smul ?a ?z) (smul ?b ?z)) => (smul (ewadd ?a ?b) ?z)", ""},
    {"smul of mul", "(smul (ewmul ?a ?b) ?z) => (ewmul ?a (smul ?b ?z))", ""},
    {"mul of smul", "(ewmul ?a (smul ?b ?z)) => (smul (ewmul ?a ?b) ?z)", ""},
    {"smul of transpose", "(smul (transpose ?a) ?z) => (transpose (smul ?a ?z))", ""},
    {"transpose of smul", "(transpose (smul ?a ?z)) => (smul (transpose ?a) ?z)", ""},
    {"smul of matmul", "(smul (matmul ?a ?b) ?z) => (matmul ?a (smul ?b ?z))", ""},
    {"matmul of smul", "(matmul ?a (smul ?b ?z)) => (smul (matmul ?a ?b) ?z)", ""},
    {"smul of matmul, inputs", "(smul (matmul ?a ?b) ?z) => (matmul (smul ?a ?z) ?b)", ""},
    {"matmul of smul, inputs", "(matmul (smul ?a ?z) ?b) => (smul (matmul ?a ?b) ?z)", ""},
    {"smul of concat", "(smul (concat ?i ?a ?b) ?z) => (concat ?i (smul ?a ?z) (smul ?b ?z))", ""},
    {"concat of smul", "(concat ?i (smul ?a ?z) (smul ?b ?z)) => (smul (concat ?i ?a ?b) ?z)", ""},
    {"smul of conv", "(smul (conv2d ?s ?t ?p 0 ?x ?w) ?z) => (conv2d ?s ?t ?p 0 ?x (smul ?w ?z))", ""},
    {"conv of smul", "(conv2d ?s ?t ?p 0 ?x (smul ?w ?z)) => (smul (conv2d ?s ?t ?p 0 ?x ?w) ?z)", ""},
    {"smul of conv, inputs", "(smul (conv2d ?s ?t ?p 0 ?x ?w) ?z) => (conv2d ?s ?t ?p 0 (smul ?x ?z) ?w)",
     ""},
    {"conv of smul, inputs", "(conv2d ?s ?t ?p 0 (smul ?x ?z) ?w) => (smul (conv2d ?s ?t ?p 0 ?x ?w) ?z)",
     ""},
    {"smul of poolavg", "(smul (poolavg ?h ?k ?s ?t ?p ?x) ?z) => (poolavg ?h ?k ?s ?t ?p (smul ?x ?z))", ""},
    {"poolavg of smul", "(poolavg ?h ?k ?s ?t ?p (smul ?x ?z)) => (smul (poolavg ?h ?k ?s ?t ?p ?x) ?z)", ""},
    {"smul of enlarge", "(smul (enlarge ?v ?w) ?z) => (enlarge (smul ?v ?z) ?w)", ""},
    {"enlarge of smul", "(enlarge (smul ?v ?z) ?w) => (smul (enlarge ?v ?w) ?z)", ""},

    {"poolavg of add",
     "(poolavg ?h ?k ?s ?t ?p (ewadd ?x ?y)) => (ewadd (poolavg ?h ?k ?s ?t ?p ?x) (poolavg ?h ?k ?s ?t ?p "
     "?y))",
     ""},
    {"add of poolavg",
     "(ewadd (poolavg ?h ?k ?s ?t ?p ?x) (poolavg ?h ?k ?s ?t ?p ?y)) => (poolavg ?h ?k ?s ?t ?p (ewadd ?x "
     "?y))",
     ""},
    {"relu of relu", "(relu (relu ?a)) => (relu ?a)", ""},
    {"poolmax of relu", "(poolmax ?h ?k ?s ?t ?p (relu ?x)) => (relu (poolmax ?h ?k ?s ?t ?p ?x))", ""},
    {"relu of poolmax", "(relu (poolmax ?h ?k ?s ?t ?p ?x)) => (poolmax ?h ?k ?s ?t ?p (relu ?x))", ""},
    {"concat of poolmax, batch",
     "(concat 0 (poolmax ?h ?k ?s ?t ?p ?x) (poolmax ?h ?k ?s ?t ?p ?y)) => (poolmax ?h ?k ?s ?t ?p (concat "
     "0 ?x ?y))",
     ""},
    {"poolmax of concat, batch",
     "(poolmax ?h ?k ?s ?t ?p (concat 0 ?x ?y)) => (concat 0 (poolmax ?h ?k ?s ?t ?p ?x) (poolmax ?h ?k ?s "
     "?t ?p ?y))",
     ""},
    {"concat of poolavg, batch",
     "(concat 0 (poolavg ?h ?k ?s ?t ?p ?x) (poolavg ?h ?k ?s ?t ?p ?y)) => (poolavg ?h ?k ?s ?t ?p (concat "
     "0 ?x ?y))",
     ""},
    {"poolavg of concat, batch",
     "(poolavg ?h ?k ?s ?t ?p (concat 0 ?x ?y)) => (concat 0 (poolavg ?h ?k ?s ?t ?p ?x) (poolavg ?h ?k ?s "
     "?t ?p ?y))",
     ""},

    {"conv of enlarged", "(conv2d ?s ?t 0 ?f ?x (enlarge ?v ?w)) => (conv2d ?s ?t 0 ?f ?x ?v)", ""},
    {"enlarge of add", "(enlarge (ewadd ?u ?v) ?w) => (ewadd (enlarge ?u ?w) (enlarge ?v ?w))", ""},
    {"add of enlarged", "(ewadd (enlarge ?u ?w) (enlarge ?v ?w)) => (enlarge (ewadd ?u ?v) ?w)", ""},
    {"enlarge of mul", "(enlarge (ewmul ?u ?v) ?w) => (ewmul (enlarge ?u ?w) (enlarge ?v ?w))", ""},
    {"mul of enlarged", "(ewmul (enlarge ?u ?w) (enlarge ?v ?w)) => (enlarge (ewmul ?u ?v) ?w)", ""},
    {"enlarge of relu", "(enlarge (relu ?v) ?w) => (relu (enlarge ?v ?w))", ""},
    {"relu of enlarged", "(relu (enlarge ?v ?w)) => (enlarge (relu ?v) ?w)", ""},
    {"enlarge of concat, outputs",
     "(enlarge (concat 0 ?u ?v) ?w) => (concat 0 (enlarge ?u ?w) (enlarge ?v ?w))", ""},
    {"concat of enlarged, outputs",
     "(concat 0 (enlarge ?u ?w) (enlarge ?v ?w)) => (enlarge (concat 0 ?u ?v) ?w)", ""},
    {"enlarge of concat, inputs",
     "(enlarge (concat 1 ?u ?v) ?w) => (concat 1 (enlarge ?u ?w) (enlarge ?v ?w))", ""},
    {"concat of enlarged, inputs",
     "(concat 1 (enlarge ?u ?w) (enlarge ?v ?w)) => (enlarge (concat 1 ?u ?v) ?w)", ""},

    {"groups in pairs", "(conv2d ?s ?t ?p ?f ?x ?w) => (conv2d ?s ?t ?p ?f ?x (merge ?w ?x 2))",
     "narrow ?w 8"},
    {"pairs of groups", "(conv2d ?s ?t ?p ?f ?x (merge ?w ?x ?n)) => (conv2d ?s ?t ?p ?f ?x ?w)", ""},

    {"matmuls of an input",
     "(matmul ?x ?a) , (matmul ?x ?b) => (head 1 (matmul ?x (concat 1 ?a ?b)) ?a 1) , (tail 1 (matmul ?x "
     "(concat 1 ?a ?b)) ?b 1)",
     ""},
    {"matmuls by a weight",
     "(matmul ?x ?a) , (matmul ?y ?a) => (head 0 (matmul (concat 0 ?x ?y) ?a) ?x 0) , (tail 0 (matmul "
     "(concat 0 ?x ?y) ?a) ?y 0)",
     ""},
    {"convs by a weight",
     "(conv2d ?s ?t ?p ?f ?x ?w) , (conv2d ?s ?t ?p ?f ?y ?w) => (head 0 (conv2d ?s ?t ?p ?f (concat 0 ?x "
     "?y) ?w) ?x 0) , (tail 0 (conv2d ?s ?t ?p ?f (concat 0 ?x ?y) ?w) ?y 0)",
     ""},
    {"convs of an input",
     "(conv2d ?s ?t ?p ?f ?x ?v) , (conv2d ?s ?t ?p ?f ?x ?w) => (head 1 (conv2d ?s ?t ?p ?f ?x (concat 0 ?v "
     "?w)) ?v 0) , (tail 1 (conv2d ?s ?t ?p ?f ?x (concat 0 ?v ?w)) ?w 0)",
     "dense ?x ?v"},
    {"relu and conv of an input",
     "(relu (conv2d ?s ?t ?p 0 ?x ?v)) , (conv2d ?s ?t ?p 2 ?x ?w) => (head 1 (conv2d ?s ?t ?p 2 ?x (concat "
     "0 ?v ?w)) ?v 0) , (tail 1 (conv2d ?s ?t ?p 2 ?x (concat 0 ?v ?w)) ?w 0)",
     "dense ?x ?v"},
    {"relu and conv by a weight",
     "(relu (conv2d ?s ?t ?p 0 ?x ?w)) , (conv2d ?s ?t ?p 2 ?y ?w) => (head 0 (conv2d ?s ?t ?p 2 (concat 0 "
     "?x ?y) ?w) ?x 0) , (tail 0 (conv2d ?s ?t ?p 2 (concat 0 ?x ?y) ?w) ?y 0)",
     ""},
    {"convs of an input, enlarged",
     "(conv2d ?s ?t 0 ?f ?x ?v) , (conv2d ?s ?t 0 ?f ?x ?w) => (head 1 (conv2d ?s ?t 0 ?f ?x (concat 0 "
     "(enlarge ?v ?w) ?w)) ?v 0) , (tail 1 (conv2d ?s ?t 0 ?f ?x (concat 0 (enlarge ?v ?w) ?w)) ?w 0)",
     "dense ?x ?v; smaller ?v ?w"},
};

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t begin = text.find_first_not_of(' '); begin != std::string_view::npos;
       begin = text.find_first_not_of(' ', begin)) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

bool holds_word(std::string_view condition, std::span<const std::string> variables,
                std::span<const Value> values) {
  const std::vector<std::string_view> words = words_of(condition);
  const auto fail = [&]() -> const Value& {
    throw std::invalid_argument("'" + std::string(condition) + "' is no condition");
  };
  const auto value = [&](std::size_t word) -> const Value& {
    const auto known = word < words.size() ? std::ranges::find(variables, words[word]) : variables.end();
    return known != variables.end() ? values[static_cast<std::size_t>(known - variables.begin())] : fail();
  };
  const auto number = [&](std::size_t word) {
    std::int64_t made = 0;
    if (word >= words.size() ||
        std::from_chars(words[word].data(), words[word].data() + words[word].size(), made).ec != std::errc{})
      fail();
    return made;
  };
  const auto size = [&](const Value& of, std::size_t word) {
    const auto dimension = static_cast<std::size_t>(number(word));
    return of.kind == Value::Kind::tensor && dimension < of.shape.size() ? of.shape[dimension] : -1;
  };
  if (words.empty()) fail();
  if (words[0] == "equal") return size(value(1), 2) == size(value(3), 4);
  if (words[0] == "narrow") return value(1).is_tensor(4) && value(1).shape[1] <= number(2);
  const Value &v = value(1), &w = value(2);
  if (words[0] == "dense") return v.is_tensor(4) && w.is_tensor(4) && v.shape[1] == w.shape[1];
  if (words[0] == "unlike") return v.number != w.number;
  if (words[0] != "smaller") fail();
  return v.is_tensor(4) && w.is_tensor(4) && v.shape[2] <= w.shape[2] && v.shape[3] <= w.shape[3] &&
         (v.shape[2] != w.shape[2] || v.shape[3] != w.shape[3]);
}

}  // namespace

std::span<const TensorRule> tensor_rules() {
  return table;
}

bool holds(std::string_view condition, std::span<const std::string> variables,
           std::span<const Value> values) {
  while (!condition.empty()) {
    const std::size_t end = std::min(condition.find(';'), condition.size());
    if (!holds_word(condition.substr(0, end), variables, values)) return false;
    condition.remove_prefix(std::min(end + 1, condition.size()));
  }
  return true;
}

std::vector<Rule> rules_of(EGraph& graph, const Shapes& shapes) {
  std::vector<Rule> made;
  for (const TensorRule& each : table) {
    made.push_back(parse_rule(each.name, each.text, graph.symbols));
    if (each.condition.empty()) continue;
    made.back().condition = [&shapes, condition = each.condition, names = made.back().variables](
                                const EGraph& of, std::span<const ClassId> variables) {
      std::vector<Value> values;
      for (const ClassId each_class : variables) values.push_back(shapes.of(of, each_class));
      return holds(condition, names, values);
    };
  }
  return made;
}

}  // namespace tensat
