// Compiled for any rounding mode: decimals are read upward, and downward as what they are negated.
#include "vnnlib.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <trainyard/error.hpp>

#include "kernels/cpu/interval_gemm.hpp"

#include "lib/read_file.hpp"

namespace gpupoly {
namespace {

using trainyard::DataError;
namespace kernels = trainyard::kernels;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::size_t most_numbers = std::size_t{1} << 26,  // of all boxes
    most_comparisons = std::size_t{1} << 20, most_variables = std::size_t{1} << 22;
constexpr int most_depth = 64;
constexpr std::uintmax_t most_bytes = std::uintmax_t{1} << 30;

/// [-low, up], in a thread that rounds up.
struct Interval {
  double low = 0.0, up = 0.0;
  Interval operator-() const { return {up, low}; }
  Interval operator+(const Interval& other) const { return {low + other.low, up + other.up}; }
  Interval operator*(const Interval& b) const {
    return {std::max({low * b.up, (-low) * b.low, (-up) * b.up, up * b.low}),
            std::max({low * b.low, (-low) * b.up, up * b.up, (-up) * b.low})};
  }
  bool is(double value) const { return -low == value && up == value; }
};

struct Variable {
  char kind = 'X';
  std::size_t index = 0;
  auto operator<=>(const Variable&) const = default;
};

struct Linear {
  std::map<Variable, Interval> terms;
  Interval constant;

  void add(const Linear& other) {
    for (const auto& [variable, c] : other.terms) terms[variable] = terms[variable] + c;
    constant = constant + other.constant;
  }
  Linear times(const Interval& factor) const {
    Linear result{.terms = {}, .constant = constant * factor};
    for (const auto& [variable, c] : terms) result.terms[variable] = c * factor;
    return result;
  }
};

/// X_index <= value, or >=.
struct Side {
  std::size_t index;
  bool upper;
  double value;  ///< of a lower side negated
};

struct Conjunction {
  std::vector<Side> sides;
  std::vector<Linear> outputs;
  std::size_t numbers() const { return sides.size() + outputs.size(); }
};
using Disjunction = std::vector<Conjunction>;

class Parser {
 public:
  Parser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Property parse() {
    for (next(); !token_.empty(); next()) command();
    for (const char kind : {'X', 'Y'}) {
      const auto& known = declared_[kind];
      for (std::size_t i = 0; i < known.size(); ++i)
        if (!known[i])
          fail(std::string(1, kind) + "_" + std::to_string(i) + " is not declared, and later ones are");
    }
    if (declared_['X'].empty() || declared_['Y'].empty())
      fail("declares " + std::to_string(declared_['X'].size()) + " inputs and " +
           std::to_string(declared_['Y'].size()) + " outputs, needs one of each at least");
    return property();
  }

 private:
  // Words

  [[noreturn]] void fail(const std::string& what) const { fail(what, line_, column_); }
  [[noreturn]] void fail(const std::string& what, std::size_t line, std::size_t column) const {
    throw DataError(name_ + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + what);
  }
  std::string found() const {
    if (token_.empty()) return "the end of the file";
    std::string shown;
    for (const char c : token_.substr(0, 40)) shown += c >= ' ' && c <= '~' ? c : '?';
    return "\"" + shown + (token_.size() > 40 ? "...\"" : "\"");
  }

  void step() {
    if (text_[at_] == '\n') {
      ++here_line_;
      here_column_ = 0;
    }
    ++here_column_;
    ++at_;
  }
  static bool space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

  /// The next bracket or word; empty at the end.
  void next() {
    while (at_ < text_.size() && (space(text_[at_]) || text_[at_] == ';')) {
      if (text_[at_] != ';') {
        step();
        continue;
      }
      while (at_ < text_.size() && text_[at_] != '\n') step();
    }
    line_ = here_line_;
    column_ = here_column_;
    const std::size_t begin = at_;
    if (at_ < text_.size() && (text_[at_] == '(' || text_[at_] == ')'))
      step();
    else
      while (at_ < text_.size() && !space(text_[at_]) && text_[at_] != '(' && text_[at_] != ')' &&
             text_[at_] != ';')
        step();
    token_ = text_.substr(begin, at_ - begin);
  }
  void expect(std::string_view word, const char* where) {
    if (token_ != word) fail("found " + found() + ", expected \"" + std::string(word) + "\" " + where);
    next();
  }

  // Commands

  /// Leaves the closing bracket as the token.
  void command() {
    expect("(", "at the begin of a command");
    if (token_ == "declare-const") {
      next();
      declare();
    } else if (token_ == "assert") {
      next();
      add(formula(0));
    } else {
      fail("found " + found() + ", expected declare-const or assert (VNN-LIB 1.0)");
    }
    if (token_ != ")") fail("found " + found() + ", expected \")\" at the end of the command");
  }

  void declare() {
    const std::optional<Variable> variable = name();
    if (!variable) fail("found " + found() + ", expected an input X_0, X_1, ... or an output Y_0, Y_1, ...");
    std::vector<bool>& known = declared_[variable->kind];
    if (variable->index < known.size() && known[variable->index]) fail(found() + " is declared twice");
    if (known.size() <= variable->index) known.resize(variable->index + 1);
    known[variable->index] = true;
    next();
    expect("Real", "as the type of a variable");
  }

  /// The token as a name of a variable, declared or not.
  std::optional<Variable> name() const {
    if (token_.size() < 3 || token_.size() > 10 || (token_[0] != 'X' && token_[0] != 'Y') || token_[1] != '_')
      return std::nullopt;
    std::size_t index = 0;
    for (const char c : token_.substr(2)) {
      if (c < '0' || c > '9') return std::nullopt;
      index = index * 10 + static_cast<std::size_t>(c - '0');
    }
    if (index >= most_variables)
      fail(found() + " is beyond the " + std::to_string(most_variables) + " that can be");
    return Variable{token_[0], index};
  }

  // Formulas: each reads its own brackets

  Disjunction formula(int depth) {
    if (depth > most_depth) fail("brackets are nested deeper than " + std::to_string(most_depth));
    expect("(", "at the begin of a formula");
    const std::string_view op = token_;
    Disjunction result;
    if (op == "and" || op == "or") {
      next();
      if (op == "and") result.emplace_back();
      if (token_ == ")") fail("\"" + std::string(op) + "\" of nothing");
      while (token_ != ")") {
        Disjunction part = formula(depth + 1);
        if (op == "and")
          conjoin(result, part);
        else
          std::move(part.begin(), part.end(), std::back_inserter(result));
      }
    } else if (op == "<=" || op == ">=") {
      const std::size_t line = line_, column = column_;
      next();
      Linear difference = sum(depth + 1), other = sum(depth + 1);
      difference.add(other.times({1.0, -1.0}));
      if (op == ">=") difference = difference.times({1.0, -1.0});
      result.push_back(atom(difference, line, column));
    } else {
      fail("found " + found() + ", expected and, or, <= or >=");
    }
    expect(")", "at the end of the formula");
    return result;
  }

  Conjunction atom(const Linear& sum, std::size_t line, std::size_t column) const {
    Conjunction result;
    const bool input = !sum.terms.empty() && sum.terms.begin()->first.kind == 'X';
    if (sum.terms.empty()) fail("compares numbers only", line, column);
    if (!input) {
      result.outputs.push_back(sum);
      return result;
    }
    const auto& [variable, c] = *sum.terms.begin();
    if (sum.terms.size() > 1 || !(c.is(1.0) || c.is(-1.0)))
      fail("expected a bound of one input, as (<= X_0 0.5), or a comparison of outputs alone", line, column);
    // x + d <= 0 is x <= -d; -x + d <= 0 is x >= d.
    result.sides.push_back({variable.index, c.is(1.0), sum.constant.low});
    return result;
  }

  Linear sum(int depth) {
    if (depth > most_depth) fail("brackets are nested deeper than " + std::to_string(most_depth));
    if (token_ != "(") return word();
    next();
    const std::string_view op = token_;
    if (op != "+" && op != "-" && op != "*") fail("found " + found() + ", expected +, - or *");
    next();
    Linear result = sum(depth + 1);
    if (op == "-" && token_ == ")") result = result.times({1.0, -1.0});
    while (token_ != ")") {
      const std::size_t line = line_, column = column_;
      const Linear part = sum(depth + 1);
      if (op == "*" && !part.terms.empty() && !result.terms.empty())
        fail("multiplies variables", line, column);
      if (op == "*")
        result = part.terms.empty() ? result.times(part.constant) : part.times(result.constant);
      else
        result.add(op == "+" ? part : part.times({1.0, -1.0}));
    }
    next();
    return result;
  }

  Linear word() {
    Linear result;
    if (const std::optional<Variable> variable = name()) {
      const auto known = declared_.find(variable->kind);
      if (known == declared_.end() || known->second.size() <= variable->index ||
          !known->second[variable->index])
        fail(found() + " was not declared before");
      result.terms[*variable] = {-1.0, 1.0};
    } else {
      result.constant = number();
    }
    next();
    return result;
  }

  /// A decimal as the doubles around it: strtod rounds as the thread does.
  Interval number() const {
    const std::string text(token_.substr(0, 400));
    const bool shaped = !text.empty() && text.find_first_not_of("+-.0123456789eE") == std::string::npos;
    const std::string negated =
        text.starts_with('-') ? text.substr(1) : "-" + text.substr(text.starts_with('+'));
    char *end = nullptr, *other = nullptr;
    const Interval value{std::strtod(negated.c_str(), &other), std::strtod(text.c_str(), &end)};
    if (!shaped || token_.size() > 400 || *end != '\0' || *other != '\0' || end == text.c_str() ||
        !std::isfinite(value.low) || !std::isfinite(value.up))
      fail("found " + found() + ", expected a number or a variable");
    return value;
  }

  // Cases

  void guard(std::size_t numbers, std::size_t most) const {
    if (numbers > most)
      fail("its ands of ors are more than " + std::to_string(most) + " numbers, multiplied out");
  }

  static void append(Conjunction& to, const Conjunction& more) {
    to.sides.insert(to.sides.end(), more.sides.begin(), more.sides.end());
    to.outputs.insert(to.outputs.end(), more.outputs.begin(), more.outputs.end());
  }

  /// Both are true.
  void conjoin(Disjunction& a, const Disjunction& b) const {
    std::size_t numbers = 0;
    for (const Conjunction& x : a) numbers += b.size() * (x.numbers() + 1);
    for (const Conjunction& y : b) numbers += a.size() * (y.numbers() + 1);
    guard(numbers, most_comparisons);
    if (b.size() == 1) {
      for (Conjunction& x : a) append(x, b.front());
      return;
    }
    Disjunction all;
    for (const Conjunction& x : a)
      for (const Conjunction& y : b) append(all.emplace_back(x), y);
    a = std::move(all);
  }

  /// Most assertions are one comparison, which stands apart.
  void add(const Disjunction& asserted) {
    if (asserted.size() == 1)
      append(always_, asserted.front());
    else
      conjoin(asserted_, asserted);
  }

  Property property() const {
    Property result{.inputs = declared_.at('X').size(), .outputs = declared_.at('Y').size(), .cases = {}};
    const std::size_t always = 2 * result.outputs * always_.outputs.size() + 2 * result.inputs;
    for (const Conjunction& either : asserted_) {
      guard((result.cases.size() + 1) * (always + 2 * result.outputs * either.outputs.size()), most_numbers);
      // Lower sides are negated until all are known.
      Case one{.lower = std::vector<double>(result.inputs, infinity),
               .upper = std::vector<double>(result.inputs, infinity),
               .atoms = {}};
      for (const Conjunction* from : {&always_, &either}) {
        for (const Side& side : from->sides) {
          double& known = (side.upper ? one.upper : one.lower)[side.index];
          known = std::min(known, side.value);
        }
        for (const Linear& sum : from->outputs) one.atoms.push_back(dense(sum, result.outputs));
      }
      bool empty = false;
      for (std::size_t i = 0; i < result.inputs; ++i) {
        one.lower[i] = -one.lower[i];
        if (!std::isfinite(one.lower[i]) || !std::isfinite(one.upper[i]))
          fail("X_" + std::to_string(i) + " has no " + (std::isfinite(one.lower[i]) ? "upper" : "lower") +
               " bound" + (asserted_.size() > 1 ? " in one of the cases" : ""));
        empty = empty || one.lower[i] > one.upper[i];
      }
      if (!empty) result.cases.push_back(std::move(one));
    }
    return result;
  }

  static Atom dense(const Linear& sum, std::size_t outputs) {
    Atom atom{.lower = std::vector<double>(outputs), .upper = std::vector<double>(outputs)};
    for (const auto& [variable, c] : sum.terms) {
      atom.lower[variable.index] = -c.low;
      atom.upper[variable.index] = c.up;
    }
    atom.constant_lower = -sum.constant.low;
    atom.constant_upper = sum.constant.up;
    return atom;
  }

  std::string_view text_, token_;
  const std::string& name_;
  std::size_t at_ = 0, here_line_ = 1, here_column_ = 1, line_ = 1, column_ = 1;
  std::map<char, std::vector<bool>> declared_;
  Conjunction always_;
  Disjunction asserted_{1};
};

}  // namespace

Property parse_property(std::string_view text, const std::string& name) {
  const kernels::Upward rounding(true);
  return Parser(text, name).parse();
}

Property read_property(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) throw DataError(path + ": is no regular file");
  if (std::filesystem::file_size(path, error) > most_bytes)
    throw DataError(path + ": is larger than " + std::to_string(most_bytes) + " bytes");
  const auto text = trainyard::lib::read_file(path);
  if (!text) throw DataError(path + ": cannot be read");
  return parse_property(*text, path);
}

double at_most(const Atom& atom, const std::vector<double>& outputs) {
  const kernels::Upward rounding(true);
  double sum = atom.constant_upper;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    sum += std::max(atom.lower[i] * outputs[i], atom.upper[i] * outputs[i]);
  return sum;
}

}  // namespace gpupoly
