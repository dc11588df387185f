#include "static_source.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <span>

#include <trainyard/error.hpp>
#include <trainyard/helpers/shape_text.hpp>

#include "constants.hpp"
#include "lib/new_file.hpp"
#include "lib/printed.hpp"
#include "sparse_rows.hpp"
#include "terms.hpp"

namespace {

using namespace trainyard;
namespace fs = std::filesystem;
using Shape = std::vector<std::int64_t>;

/// What is written as it is: operators, programs and the headers that these need (static/, sdk/include/trainyard/ad).
constexpr struct {
  std::string_view name, text;
} files[] = {
#include <static_files.inc>
};

/// Numbers for each sample.
std::int64_t length(std::span<const std::int64_t> shape) {
  std::int64_t result = 1;
  for (const std::int64_t dim : shape) result *= std::abs(dim);
  return result;
}

std::string braces(std::span<const std::int64_t> numbers) {
  std::string result;
  for (const std::int64_t each : numbers) result += (result.empty() ? "{" : ", ") + std::to_string(each);
  return result + "}";
}

/// A number as C++ reads it back, to the bit.
std::string literal(double value) {
  const std::string text = lib::printed("%.9gf", value);
  return text.find_first_of(".e") == std::string::npos ? std::to_string(static_cast<long>(value)) + ".0f"
                                                       : text;
}

template <class... Parts>
std::string list(const Parts&... parts) {
  std::string result;
  ((result += (result.empty() ? "" : ", ") + std::string(parts)), ...);
  return result;
}

/// Places in one array that values of a pass have in turn: one that nobody reads any more is free for the next.
class Arena {
 public:
  std::int64_t take(std::int64_t size) {
    for (Block& place : places_)
      if (place.free && place.size >= size) return place.free = false, place.offset;
    places_.push_back({size_, size, false});
    size_ += size;
    return places_.back().offset;
  }
  void give_back(std::int64_t offset) {
    for (Block& place : places_)
      if (place.offset == offset) place.free = true;
  }
  std::int64_t size() const { return size_; }

 private:
  struct Block {
    std::int64_t offset, size;
    bool free;
  };
  std::vector<Block> places_;
  std::int64_t size_ = 0;
};

class Source {
 public:
  Source(const Graph& graph, const std::vector<NamedTensor>& tensors)
      : graph_(with_tensors(graph, tensors)), constants_(graph_) {
    if (graph.inputs.size() != 1 || graph.outputs.size() != 1)
      throw ConfigError("to = \"static\" takes a network of one input and one output; this one has " +
                        std::to_string(graph.inputs.size()) + " and " + std::to_string(graph.outputs.size()));
    require_type(graph.inputs[0], holds_integers(graph.inputs[0]),
                 "an input of 32-bit floats or of 64-bit integers");
    require_type(graph.outputs[0], false, "an output of 32-bit floats");
    for (const Node& node : graph.nodes)
      for (const ValueId id : node.inputs)
        if (id != no_value) ++readers_[id];
    ++readers_[graph.outputs[0]];
    places_[graph.inputs[0]] = "input";
    for (const Node& node : graph.nodes)
      if (!constants_.contains(first_output(node))) write(node);
    call("copy", list(place(graph.outputs[0]), "output", number(outputs())));
  }

  std::string header(const std::string& source) const {
    std::string text =
        "// The network of " + source +
        ", written by trainyard export --to static. One sample at a time, on one thread.\n"
        "#pragma once\n\n#include <cstddef>\n\n#include \"runtime.hpp\"\n\nnamespace network {\n\n"
        "constexpr std::size_t inputs = " +
        number(inputs()) + ", outputs = " + number(outputs()) +
        ", weights = " + number(std::ssize(weights_)) + ";\n" + input_type() +
        "\n/// weights.bin\nextern \"C\" const float trained[];\n" + packing() +
        "\n"
        "/// input: " +
        shape_text(shape(graph_.inputs[0])) + ", output: " + shape_text(shape(graph_.outputs[0])) +
        ", without the batch; weights: `trained`, or others in their order.\n"
        "void forward(const float* weights, const Input* input, float* output);\n";
    if (chain_) {
      text += "\n/// The network, input to output.\nconstexpr runtime::Layer layers[] = {\n";
      for (const std::string& layer : layers_) text += "    {" + layer + "},\n";
      text += "};\n";
    }
    return text + "\n}  // namespace network\n";
  }
  std::string code() const {
    return "#include \"network.hpp\"\n\n// A file's bytes are those of the array.\n" +
           array("trained", "weights.bin") +
           (places_of_numbers_.empty() ? "" : array("places", "places.bin")) +
           "\nnamespace network {\n\nusing namespace runtime;\n\nstatic float arena[" +
           number(std::max<std::int64_t>(1, arena_.size())) +
           "];\n\nvoid forward(const float* weights, const Input* input, float* output) {\n" + code_ +
           "}\n\n}  // namespace network\n";
  }
  const std::vector<float>& weights() const { return weights_; }
  /// Rows and columns of the numbers of sparse terms, as places.bin holds them.
  const std::vector<std::uint16_t>& places_of_numbers() const { return places_of_numbers_; }
  bool chain() const { return chain_; }

 private:
  static std::string number(std::int64_t value) { return std::to_string(value); }
  static std::string array(const std::string& name, const std::string& file) {
    return "__asm__(\".pushsection .rodata\\n.balign 64\\n.globl " + name + "\\n" + name +
           ":\\n.incbin \\\"" + file + "\\\"\\n.popsection\");\n";
  }
  /// What a number of an input is, and which are taken.
  std::string input_type() const {
    if (!holds_integers(graph_.inputs[0]))
      return "\nusing Input = float;\nconstexpr bool takes(Input) {\n  return true;\n}\n";
    return "\nusing Input = long long;\n/// The numbers of rows that all tables have, which the input's need "
           "to be.\n"
           "constexpr bool takes(Input number) {\n  return number >= 0 && number < " +
           number(rows_of_tables_) + ";\n}\n";
  }
  /// Says how much smaller weights in terms are than matrices.
  std::string packing() const {
    if (packed_.empty()) return "";
    std::string text = "\n";
    for (const std::string& each : packed_) text += "// " + each + "\n";
    if (!places_of_numbers_.empty()) text += "/// places.bin\nextern \"C\" const unsigned short places[];\n";
    return text;
  }
  const GraphValue& value(ValueId id) const { return graph_.values[static_cast<std::size_t>(id)]; }
  const Shape& shape(ValueId id) const { return value(id).shape; }
  std::int64_t inputs() const { return length(shape(graph_.inputs[0])); }
  std::int64_t outputs() const { return length(shape(graph_.outputs[0])); }

  bool holds_integers(ValueId id) const { return value(id).dtype == at::kLong; }
  void require_type(ValueId id, bool integers, const std::string& taken) const {
    if (value(id).dtype == (integers ? at::kLong : at::kFloat)) return;
    throw ConfigError("to = \"static\" takes a network of " + taken + "; that of this one, " +
                      value(id).name + ", holds " + c10::toString(value(id).dtype));
  }
  static ValueId first_output(const Node& node) {
    return *std::ranges::find_if(node.outputs, [](ValueId id) { return id != no_value; });
  }

  [[noreturn]] static void refuse(const Node& node, const std::string& why) {
    throw ConfigError("to = \"static\": node \"" + node.name + "\", a " + node.op + ": " + why);
  }
  static void require(const Node& node, bool fits, const std::string& why) {
    if (!fits) refuse(node, why);
  }

  void require_weight(const Node& node, std::size_t index) const {
    const ValueId from = node.inputs[index];
    require(
        node, constants_.contains(from),
        "its input " + value(from).name + " is computed of the network's input, and needs to be a weight");
  }
  at::Tensor tensor(const Node& node, std::size_t index) const {
    require_weight(node, index);
    return constants_.at(node.inputs[index]).to(at::kDouble).contiguous();
  }
  bool has(const Node& node, std::size_t index) const {
    return index < node.inputs.size() && node.inputs[index] != no_value;
  }

  /// Adds to the weights; gives their place.
  std::int64_t keep(const at::Tensor& tensor) {
    const auto place = std::ssize(weights_);
    const at::Tensor single = tensor.to(at::kFloat).contiguous();
    const float* const from = single.const_data_ptr<float>();
    weights_.insert(weights_.end(), from, from + single.numel());
    return place;
  }
  static std::string weight(std::int64_t place) { return "weights + " + number(place); }
  /// Of an optional one: "nullptr" where the node has none.
  std::string keep_optional(const Node& node, std::size_t index) {
    return has(node, index) ? weight(keep(tensor(node, index))) : "nullptr";
  }

  std::string place(ValueId id) const { return places_.at(id); }
  void call(const std::string& function, const std::string& arguments) {
    code_ += indent_ + function + "(" + arguments + ");\n";
  }

  /// Where an output of a node goes; what it reads is still there.
  std::string output(const Node& node, std::size_t index = 0) {
    const ValueId id = node.outputs[index];
    const std::int64_t offset = arena_.take(length(shape(id)));
    offsets_[id] = offset;
    return places_[id] = "arena + " + number(offset);
  }
  /// The output is the input by another name.
  void alias(const Node& node) {
    const ValueId from = node.inputs[0], to = node.outputs[0];
    const auto found = offsets_.find(from);
    if (readers_[from] > 1 && found != offsets_.end())  // whoever is last would free the place of both
      return call("copy", list(place(from), output(node), number(length(shape(to)))));
    places_[to] = places_.at(from);
    if (found == offsets_.end()) return;
    offsets_[to] = found->second;
    offsets_.erase(found);
  }
  void done_with_inputs(const Node& node) {
    for (const ValueId id : node.inputs) {
      if (id == no_value || --readers_[id] > 0) continue;
      if (const auto found = offsets_.find(id); found != offsets_.end()) arena_.give_back(found->second);
    }
  }

  void require_samples_apart(const Node& node) const;
  void write(const Node& node);
  void gemm(const Node& node);
  void packed_gemm(const Node& node, const std::vector<Term>& terms);
  void add_product(ValueId matrix, const std::vector<Term>& terms, const std::string& from,
                   const std::string& to, std::int64_t rows);
  void add(const Term& term, const std::string& from, const std::string& to, std::int64_t rows,
           std::int64_t in, std::int64_t out);
  std::int64_t keep_bias(const Node& node, std::int64_t out);
  void conv(const Node& node);
  void pool(const Node& node);
  void normalize_channels(const Node& node);
  void normalize_layer(const Node& node);
  void softmax(const Node& node);
  void lstm(const Node& node);
  void gather(const Node& node);
  void transpose(const Node& node);
  void each(const Node& node, const std::string& function, double parameter = 0.0);
  void pairs(const Node& node, const std::string& function);

  std::string image(ValueId id) const {
    return "{" + number(shape(id)[1]) + ", " + number(shape(id)[2]) + ", " + number(shape(id)[3]) + "}";
  }
  std::string window(const Node& node, const Shape& kernel) const;

  using Write = void (*)(Source&, const Node&);
  static const std::map<std::string, Write, std::less<>>& operators();

  const Graph graph_;
  const Constants constants_;
  std::map<ValueId, int> readers_;
  std::map<ValueId, std::string> places_;
  std::map<ValueId, std::int64_t> offsets_;  // of those in the arena
  Arena arena_;
  std::string code_, indent_ = "  ";
  std::int64_t rows_of_tables_ = std::numeric_limits<std::int64_t>::max();  // of the one that has the fewest
  std::vector<float> weights_;
  std::vector<std::uint16_t> places_of_numbers_;
  std::vector<std::string> packed_;  // what weights in terms take, for people
  std::vector<std::string> layers_;
  bool chain_ = true;
};

const std::map<std::string, Source::Write, std::less<>>& Source::operators() {
  static const Write same = [](Source& s, const Node& node) { s.alias(node); };
  static const std::map<std::string, Write, std::less<>> table = {
      {"Add", [](Source& s, const Node& node) { s.pairs(node, "add"); }},
      {"AveragePool", [](Source& s, const Node& node) { s.pool(node); }},
      {"BatchNormalization", [](Source& s, const Node& node) { s.normalize_channels(node); }},
      {"Conv", [](Source& s, const Node& node) { s.conv(node); }},
      {"Dropout", same},
      {"Elu", [](Source& s, const Node& node) { s.each(node, "elu", node.number("alpha", 1.0)); }},
      {"Flatten", same},
      {"Gather", [](Source& s, const Node& node) { s.gather(node); }},
      {"Gelu",
       [](Source& s, const Node& node) {
         s.each(node, node.text("approximate", "none") == "tanh" ? "gelu_tanh" : "gelu");
       }},
      {"Gemm", [](Source& s, const Node& node) { s.gemm(node); }},
      {"GlobalAveragePool",
       [](Source& s, const Node& node) {
         const Shape& from = s.shape(node.inputs[0]);
         s.call("global_average", list(s.place(node.inputs[0]), s.output(node), number(from[1]),
                                       number(length(std::span(from).subspan(2)))));
       }},
      {"Identity", same},
      {"LSTM", [](Source& s, const Node& node) { s.lstm(node); }},
      {"LayerNormalization", [](Source& s, const Node& node) { s.normalize_layer(node); }},
      {"LeakyRelu",
       [](Source& s, const Node& node) { s.each(node, "leaky_relu", node.number("alpha", 0.01)); }},
      {"LogSoftmax", [](Source& s, const Node& node) { s.softmax(node); }},
      {"MaxPool", [](Source& s, const Node& node) { s.pool(node); }},
      {"Mul", [](Source& s, const Node& node) { s.pairs(node, "mul"); }},
      {"Relu", [](Source& s, const Node& node) { s.each(node, "relu"); }},
      {"Reshape", same},
      {"Selu", [](Source& s, const Node& node) { s.each(node, "selu"); }},
      {"Sigmoid", [](Source& s, const Node& node) { s.each(node, "sigmoid"); }},
      {"Softmax", [](Source& s, const Node& node) { s.softmax(node); }},
      {"Squeeze", same},
      {"Sub", [](Source& s, const Node& node) { s.pairs(node, "sub"); }},
      {"Tanh", [](Source& s, const Node& node) { s.each(node, "tanh"); }},
      {"Transpose", [](Source& s, const Node& node) { s.transpose(node); }},
      {"Unsqueeze", same},
  };
  return table;
}

/// Samples are one behind the other, but for recurrent layers, which may have time in front, and what leads there and back; numbers of
/// tables' rows are looked up and nothing else.
void Source::require_samples_apart(const Node& node) const {
  static constexpr std::string_view anywhere[] = {"LSTM", "Squeeze", "Transpose", "Unsqueeze"};
  static constexpr std::string_view takes_integers[] = {"Flatten", "Gather",    "Identity", "Reshape",
                                                        "Squeeze", "Transpose", "Unsqueeze"};
  const bool front = std::ranges::find(anywhere, node.op) == std::end(anywhere);
  std::vector<ValueId> computed = {first_output(node)};
  for (const ValueId id : node.inputs)
    if (id != no_value && !constants_.contains(id)) computed.push_back(id);
  for (const ValueId id : computed) {
    const Shape& dims = shape(id);
    const bool apart = front ? !dims.empty() && dims[0] < 0
                             : std::ranges::count_if(dims, [](std::int64_t dim) { return dim < 0; }) == 1;
    require(node, apart,
            value(id).name + " has the shape " + shape_text(dims) + ", and needs the batch in front");
    require(
        node,
        value(id).dtype == at::kFloat ||
            std::ranges::find(takes_integers, node.op) != std::end(takes_integers),
        value(id).name + " holds " + c10::toString(value(id).dtype) + ", and needs to hold 32-bit floats");
  }
}

void Source::write(const Node& node) {
  const auto found = operators().find(node.op);
  if (found == operators().end()) {
    std::string known;
    for (const auto& [name, write] : operators()) known += (known.empty() ? "" : ", ") + name;
    refuse(node, "there is no such operator for small devices; there are " + known);
  }
  require_samples_apart(node);
  code_ += "  // " + node.name + ": " + node.op + ", " + shape_text(shape(first_output(node))) + "\n";
  found->second(*this, node);
  done_with_inputs(node);
  static constexpr std::string_view behind[] = {"Relu", "Sigmoid", "Tanh"};
  const bool function = std::ranges::find(behind, node.op) != std::end(behind);
  if (function && !layers_.empty() && layers_.back().ends_with("nullptr")) {
    const std::string name = node.op == "Relu" ? "relu" : node.op == "Tanh" ? "tanh" : "sigmoid";
    layers_.back().replace(layers_.back().size() - 7, 7, "runtime::" + name);
  } else {
    static constexpr std::string_view others[] = {"Dropout", "Flatten", "Gemm", "Identity"};
    chain_ = chain_ && std::ranges::find(others, node.op) != std::end(others);
  }
}

void Source::gemm(const Node& node) {
  const double alpha = node.number("alpha", 1.0);
  require(node, node.integer("transA", 0) == 0, "transA is not written");
  at::Tensor matrix = tensor(node, 1).mul(alpha);
  if (node.integer("transB", 0) == 0)
    matrix = matrix.t();
  else if (alpha == 1.0)
    if (const std::vector<Term> terms = terms_of(graph_, constants_, node.inputs[1]);
        terms.size() > 1 || terms[0].form != Term::Form::dense)
      return packed_gemm(node, terms);
  const std::int64_t out = matrix.size(0), in = matrix.size(1), rows = -shape(node.inputs[0])[0];
  const std::int64_t first = keep(matrix), bias = keep_bias(node, out);
  call("gemm", list(weight(first), bias < 0 ? "nullptr" : weight(bias), place(node.inputs[0]), output(node),
                    number(rows), number(in), number(out)));
  chain_ = chain_ && rows == 1;
  layers_.push_back(list(number(in), number(out), number(first), number(bias), "nullptr"));
}

/// Adds the bias to the weights and gives its place; -1 where there is none.
std::int64_t Source::keep_bias(const Node& node, std::int64_t out) {
  if (!has(node, 2)) return -1;
  const at::Tensor numbers = tensor(node, 2).mul(node.number("beta", 1.0));
  require(
      node, numbers.numel() == 1 || (numbers.numel() == out && numbers.size(-1) == out),
      "its bias has the shape " + shape_text(numbers.sizes().vec()) + ", and needs a number for each output");
  return keep(numbers.reshape({-1}).expand({out}));
}

/// The bias, and what each term adds to it.
void Source::packed_gemm(const Node& node, const std::vector<Term>& terms) {
  const std::int64_t out = shape(node.inputs[1])[0], rows = -shape(node.inputs[0])[0],
                     bias = keep_bias(node, out);
  const std::string to = output(node);
  call("start", list(bias < 0 ? "nullptr" : weight(bias), to, number(rows), number(out)));
  add_product(node.inputs[1], terms, place(node.inputs[0]), to, rows);
  chain_ = false;
}

/// Adds what the terms of a matrix make of rows, and notes how much smaller they are.
void Source::add_product(ValueId matrix, const std::vector<Term>& terms, const std::string& from,
                         const std::string& to, std::int64_t rows) {
  const std::int64_t in = shape(matrix).back(), out = length(shape(matrix)) / in;
  std::int64_t numbers = 0, bytes = 0;
  for (const Term& term : terms) {
    add(term, from, to, rows, in, out);
    numbers += term.numbers();
    bytes += term.bytes();
  }
  if (terms.size() == 1 && terms[0].form == Term::Form::dense) return;
  packed_.push_back(value(matrix).name + ": " + number(out * in) + " numbers as " + number(numbers) + ", " +
                    number(4 * out * in) + " bytes as " + number(bytes));
}

void Source::add(const Term& term, const std::string& from, const std::string& to, std::int64_t rows,
                 std::int64_t in, std::int64_t out) {
  const std::string where =
      list(from, term.row == 0 ? to : to + " + " + number(term.row), number(rows), number(in), number(out));
  if (term.form == Term::Form::dense)
    return call("add_dense", list(weight(keep(term.left)), where, number(term.rows())));
  if (term.form == Term::Form::sparse) {
    const SparseRows packed = sparse_rows(term.left);
    const std::int64_t first = std::ssize(weights_), place = std::ssize(places_of_numbers_);
    weights_.insert(weights_.end(), packed.numbers.begin(), packed.numbers.end());
    places_of_numbers_.insert(places_of_numbers_.end(), packed.places.begin(), packed.places.end());
    return call("add_sparse", list(weight(first), "places + " + number(place), where));
  }
  const bool low_rank = term.form == Term::Form::low_rank;
  const std::int64_t size = low_rank ? term.left.size(1) : term.left.size(1) * term.right.size(0);
  const std::int64_t first = keep(term.left), second = keep(low_rank ? term.right : term.right.t()),
                     between = arena_.take(size);
  std::string sizes = number(term.left.size(0)) + ", " + number(term.left.size(1));
  if (!low_rank) sizes += ", " + number(term.right.size(0)) + ", " + number(term.right.size(1));
  call(low_rank ? "add_low_rank" : "add_kronecker",
       list(weight(first), weight(second), where, sizes, "arena + " + number(between)));
  arena_.give_back(between);
}

std::string Source::window(const Node& node, const Shape& kernel) const {
  require(node, shape(node.inputs[0]).size() == 4, "its input is no image [batch, channels, height, width]");
  const std::string padding = node.text("auto_pad", "NOTSET");
  require(node, padding == "NOTSET" || padding == "VALID", "auto_pad = " + padding + " is not written");
  const Shape pads = padding == "VALID" ? Shape(4, 0) : node.integers("pads", Shape(4, 0));
  return "{" +
         list(braces(kernel), braces(node.integers("strides", {1, 1})),
              braces(node.integers("dilations", {1, 1})), braces(std::span(pads).first(2))) +
         "}";
}

void Source::conv(const Node& node) {
  const at::Tensor kernel = tensor(node, 1);
  const std::string slides = window(node, {kernel.sizes().begin() + 2, kernel.sizes().end()});
  const std::string weights = weight(keep(kernel)), bias = keep_optional(node, 2);
  call("conv", list(weights, bias, place(node.inputs[0]), output(node), image(node.inputs[0]),
                    image(node.outputs[0]), slides, number(node.integer("group", 1))));
}

void Source::pool(const Node& node) {
  const bool largest = node.op == "MaxPool";
  require(node, node.outputs.size() == 1, "its second output is not written");
  require(node, largest || node.integer("ceil_mode", 0) == 0, "a mean with ceil_mode is not written");
  const std::string slides = window(node, node.integers("kernel_shape", {}));
  call("pool",
       list(place(node.inputs[0]), output(node), image(node.inputs[0]), image(node.outputs[0]), slides,
            largest ? "true" : "false", node.integer("count_include_pad", 0) != 0 ? "true" : "false"));
}

/// The running statistics of an evaluation, as a factor and a summand of each channel.
void Source::normalize_channels(const Node& node) {
  const at::Tensor scale = tensor(node, 1).div(tensor(node, 4).add(node.number("epsilon", 1e-5)).sqrt());
  const at::Tensor shift = tensor(node, 2).sub(tensor(node, 3).mul(scale));
  const Shape& from = shape(node.inputs[0]);
  const std::string by = weight(keep(scale)), plus = weight(keep(shift));
  call("scale_channels", list(by, plus, place(node.inputs[0]), output(node), number(from[1]),
                              number(length(std::span(from).subspan(2)))));
}

void Source::normalize_layer(const Node& node) {
  const at::Tensor scale = tensor(node, 1);
  const std::string by = weight(keep(scale)), plus = keep_optional(node, 2);
  call("layer_norm", list(by, plus, place(node.inputs[0]), output(node),
                          number(length(shape(node.inputs[0])) / scale.numel()), number(scale.numel()),
                          literal(node.number("epsilon", 1e-5))));
}

void Source::softmax(const Node& node) {
  const Shape& from = shape(node.inputs[0]);
  const std::int64_t axis = node.integer("axis", -1), last = std::ssize(from) - 1;
  require(node, axis == -1 || axis == last, "it needs to be over the last axis");
  call("softmax", list(place(node.inputs[0]), output(node), number(length(from) / from.back()),
                       number(from.back()), node.op == "LogSoftmax" ? "true" : "false"));
}

/// One step after the other: what comes to the gates is what both weights add to the biases, of which the program has the sum.
void Source::lstm(const Node& node) {
  const ValueId w = node.inputs[1], r = node.inputs[2];
  const Shape& from = shape(node.inputs[0]);
  const bool batch_first = node.integer("layout", 0) != 0;
  require(node, node.text("direction", "forward") == "forward",
          "direction = \"" + node.text("direction", "forward") + "\" is not written");
  require(node, from[batch_first ? 0 : 1] == batch_dim,
          value(node.inputs[0]).name + " has the shape " + shape_text(from) + ", and needs to be [" +
              (batch_first ? "batch, time" : "time, batch") + ", features]");
  for (const std::size_t index : {1, 2}) require_weight(node, index);
  const std::int64_t steps = from[batch_first ? 1 : 0], in = from[2], hidden = shape(r)[2];
  const std::string bias =
      has(node, 3) ? weight(keep(tensor(node, 3).reshape({2, 4 * hidden}).sum(0))) : "nullptr";

  std::vector<std::int64_t> own;  // of what nobody reads afterwards
  const auto room = [&](std::int64_t size) {
    own.push_back(arena_.take(size));
    return "arena + " + number(own.back());
  };
  const auto is_read = [&](std::size_t index) {
    return index < node.outputs.size() && node.outputs[index] != no_value &&
           readers_[node.outputs[index]] > 0;
  };
  const std::string all = is_read(0) ? output(node) : "", h = is_read(1) ? output(node, 1) : room(hidden),
                    c = is_read(2) ? output(node, 2) : room(hidden), gates = room(4 * hidden);
  const auto begin = [&](std::size_t index, const std::string& state) {
    call("start", list(has(node, index) ? place(node.inputs[index]) : "nullptr", state, "1", number(hidden)));
  };
  begin(5, h);
  begin(6, c);
  code_ += "  for (int t = 0; t < " + number(steps) + "; ++t) {\n";
  indent_ = "    ";
  call("start", list(bias, gates, "1", number(4 * hidden)));
  add_product(w, terms_of(graph_, constants_, w), place(node.inputs[0]) + " + t * " + number(in), gates, 1);
  add_product(r, terms_of(graph_, constants_, r), h, gates, 1);
  call("lstm_step", list(gates, c, h, number(hidden)));
  if (!all.empty()) call("copy", list(h, all + " + t * " + number(hidden), number(hidden)));
  indent_ = "  ";
  code_ += "  }\n";
  for (const std::int64_t place : own) arena_.give_back(place);
}

void Source::gather(const Node& node) {
  const at::Tensor table = tensor(node, 0);
  const ValueId numbers = node.inputs[1];
  require(node, node.integer("axis", 0) == 0 && table.dim() == 2, "it needs to take rows of a matrix");
  require(node, holds_integers(numbers),
          "its input " + value(numbers).name + " holds " + c10::toString(value(numbers).dtype) +
              ", and needs to be one of 64-bit integers");
  rows_of_tables_ = std::min(rows_of_tables_, table.size(0));
  call("gather", list(weight(keep(table)), place(numbers), output(node), number(length(shape(numbers))),
                      number(table.size(1))));
}

/// Dimensions of 1, as the batch is here, may go elsewhere, and no number moves.
void Source::transpose(const Node& node) {
  const Shape& from = shape(node.inputs[0]);
  Shape order = node.integers("perm", {});
  std::erase_if(order,
                [&](std::int64_t axis) { return std::abs(from[static_cast<std::size_t>(axis)]) == 1; });
  require(node, node.attributes.contains("perm") && std::ranges::is_sorted(order),
          "it moves more than the batch");
  alias(node);
}

void Source::each(const Node& node, const std::string& function, double parameter) {
  call("each", list("runtime::" + function, literal(parameter), place(node.inputs[0]), output(node),
                    number(length(shape(node.outputs[0])))));
}

void Source::pairs(const Node& node, const std::string& function) {
  for (const ValueId id : node.inputs)
    require(node, !constants_.contains(id) && shape(id) == shape(node.outputs[0]),
            "its input " + value(id).name + " " + shape_text(shape(id)) +
                " needs to be computed, and of the shape of the output, " +
                shape_text(shape(node.outputs[0])));
  call(function, list(place(node.inputs[0]), place(node.inputs[1]), output(node),
                      number(length(shape(node.outputs[0])))));
}

void write_file(const fs::path& path, std::string_view bytes) {
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  lib::NewFile made(path.string());
  std::ofstream out(made.temporary(), std::ios::binary);
  out.write(bytes.data(), std::ssize(bytes));
  out.close();
  if (!out || made.put_in_place()) throw DataError(path.string() + ": cannot be written");
}

std::string makefile(bool chain) {
  const std::string programs = chain ? "predict fit" : "predict";
  std::string text = "CXX ?= g++\nCXXFLAGS ?= -std=c++20 -O3\nLDFLAGS ?= -static -s\n\nall: " + programs +
                     "\nnetwork.o: network.cpp network.hpp runtime.hpp $(wildcard *.bin)\n\t$(CXX) "
                     "$(CXXFLAGS) -c network.cpp\n";
  const auto program = [&](const std::string& name, const std::string& more) {
    text += name + ": " + name + ".cpp network.o" + more + "\n\t$(CXX) $(CXXFLAGS) -I. " + name +
            ".cpp network.o -o $@ $(LDFLAGS)\n";
  };
  program("predict", "");
  if (chain) program("fit", " $(wildcard trainyard/ad/*.hpp)");
  return text + "clean:\n\trm -f network.o " + programs + "\n.PHONY: all clean\n";
}

}  // namespace

void write_static(const std::string& folder, const Graph& graph, const std::vector<NamedTensor>& tensors,
                  const std::string& source) {
  const Source network(graph, tensors);
  const fs::path path(folder);
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_empty(path, ignored) && !fs::exists(path / "network.cpp", ignored))
    throw ConfigError("the folder " + folder + " holds other things than a network; give another as `file`");
  for (const char* name : {"fit.cpp", "places.bin"})
    fs::remove(path / name, ignored);  // of a network that was there before
  const auto& weights = network.weights();
  write_file(path / "weights.bin",
             {reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float)});
  if (const auto& places = network.places_of_numbers(); !places.empty())
    write_file(path / "places.bin",
               {reinterpret_cast<const char*>(places.data()), places.size() * sizeof places[0]});
  write_file(path / "network.hpp", network.header(source));
  write_file(path / "network.cpp", network.code());
  for (const auto& [name, text] : files)
    if (network.chain() || name == "runtime.hpp" || name == "predict.cpp") write_file(path / name, text);
  write_file(path / "Makefile", makefile(network.chain()));
}
