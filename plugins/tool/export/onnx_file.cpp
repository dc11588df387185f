#include "onnx_file.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include <trainyard/error.hpp>
#include <trainyard/version.hpp>

#include "lib/new_file.hpp"

namespace {

using namespace trainyard;

// Protobuf's wire format; numbers of fields are those of onnx.proto (https://github.com/onnx/onnx).

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string integer(std::uint64_t field, std::int64_t value) {
  return varint(field << 3) + varint(static_cast<std::uint64_t>(value));
}

std::string bytes(std::uint64_t field, const std::string& content) {
  return varint(field << 3 | 2) + varint(content.size()) + content;
}

std::string single(std::uint64_t field, double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  std::string result = varint(field << 3 | 5);
  for (int shift = 0; shift < 32; shift += 8) result += static_cast<char>(bits >> shift);
  return result;
}

/// TensorProto.DataType; 0: ONNX has none.
std::int64_t type_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat: return 1;
    case at::kByte: return 2;
    case at::kChar: return 3;
    case at::kShort: return 5;
    case at::kInt: return 6;
    case at::kLong: return 7;
    case at::kBool: return 9;
    case at::kHalf: return 10;
    case at::kDouble: return 11;
    case at::kBFloat16: return 16;
    default: return 0;
  }
}

std::int64_t type_of(const std::string& name, at::ScalarType dtype) {
  const std::int64_t type = type_of(dtype);
  if (type == 0)
    throw ConfigError("\"" + name + "\" holds " + c10::toString(dtype) + ", which ONNX has no type for");
  return type;
}

std::string attribute(const std::string& node, const std::string& name, const Attribute& value) {
  std::string content = bytes(1, name);
  const auto list = [&](std::int64_t type, const auto& values, auto write) {
    for (const auto& each : values) content += write(each);
    content += integer(20, type);
  };
  if (const auto* const number = std::get_if<std::int64_t>(&value))
    content += integer(3, *number) + integer(20, 2);
  else if (const auto* const real = std::get_if<double>(&value))
    content += single(2, *real) + integer(20, 1);
  else if (const auto* const text = std::get_if<std::string>(&value))
    content += bytes(4, *text) + integer(20, 3);
  else if (const auto* const integers = std::get_if<std::vector<std::int64_t>>(&value))
    list(7, *integers, [](std::int64_t each) { return integer(8, each); });
  else if (const auto* const reals = std::get_if<std::vector<double>>(&value))
    list(6, *reals, [](double each) { return single(7, each); });
  else if (const auto* const texts = std::get_if<std::vector<std::string>>(&value))
    list(8, *texts, [](const std::string& each) { return bytes(9, each); });
  else
    throw ConfigError("node \"" + node + "\": attribute `" + name + "` is a tensor, which is not written");
  return bytes(5, content);
}

std::string node_text(const std::string& op, const std::string& name, const std::vector<std::string>& inputs,
                      const std::vector<std::string>& outputs,
                      const std::map<std::string, Attribute, std::less<>>& attributes) {
  std::string content;
  for (const std::string& input : inputs) content += bytes(1, input);
  for (const std::string& output : outputs) content += bytes(2, output);
  content += bytes(3, name) + bytes(4, op);
  for (const auto& [key, value] : attributes) content += attribute(name, key, value);
  return bytes(1, content);
}

std::string value_info(const GraphValue& value) {
  std::string dims;
  for (const std::int64_t dim : value.shape)
    dims += bytes(1, dim >= 0    ? integer(1, dim)
                     : dim == -1 ? bytes(2, "batch")
                                 : bytes(2, "batch_x_" + std::to_string(-dim)));
  return bytes(1, value.name) +
         bytes(2, bytes(1, integer(1, type_of(value.name, value.dtype)) + bytes(2, dims)));
}

/// A file that stands at its place once it is whole.
class Whole {
 public:
  explicit Whole(const std::string& path)
      : path_(path), made_(path), out_(made_.temporary(), std::ios::binary) {}

  void write(const char* data, std::size_t size) { out_.write(data, static_cast<std::streamsize>(size)); }
  void finish() {
    out_.close();
    if (!out_) fail(errno);
    if (const auto failure = made_.put_in_place()) fail(failure->reason);
  }

 private:
  [[noreturn]] void fail(int reason) const {
    throw DataError(path_ + ": cannot be written: " + std::strerror(reason));
  }
  std::string path_;
  lib::NewFile made_;
  std::ofstream out_;
};

class Writer {
 public:
  Writer(const Graph& graph, const std::vector<NamedTensor>& tensors) : graph_(graph) {
    for (const auto& [name, tensor] : tensors) given_[name] = tensor;
  }

  std::string nodes() {
    std::string content;
    for (const Node& node : graph_.nodes)
      content += node.op == "LSTM" || node.op == "GRU" || node.op == "RNN" ? recurrent(node) : plain(node);
    return content;
  }

  /// Initializers that a node reads, in the order of the values.
  std::vector<std::pair<const GraphValue*, at::Tensor>> initializers() const {
    std::set<ValueId> read(graph_.outputs.begin(), graph_.outputs.end());
    for (const Node& node : graph_.nodes) read.insert(node.inputs.begin(), node.inputs.end());
    std::vector<std::pair<const GraphValue*, at::Tensor>> result;
    for (const ValueId id : read) {
      if (id == no_value || !value(id).initializer.defined()) continue;
      const auto found = given_.find(value(id).name);
      const at::Tensor& tensor = found == given_.end() ? value(id).initializer : found->second;
      result.emplace_back(&value(id), tensor.detach().to(at::kCPU).contiguous());
    }
    return result;
  }

  std::string inputs_and_outputs() const {
    std::string content;
    for (const ValueId id : graph_.inputs) content += bytes(11, value_info(value(id)));
    for (const ValueId id : graph_.outputs) content += bytes(12, value_info(value(id)));
    return content;
  }

 private:
  const GraphValue& value(ValueId id) const { return graph_.values[static_cast<std::size_t>(id)]; }
  std::string name(ValueId id) const { return id == no_value ? "" : value(id).name; }
  std::vector<std::string> names(const std::vector<ValueId>& ids) const {
    std::vector<std::string> result;
    for (const ValueId id : ids) result.push_back(name(id));
    return result;
  }

  /// As it is, but for what the Graph says in its own way: a site of dropout has its axis, and the identity in an
  /// evaluation is ONNX's Dropout without a ratio.
  std::string plain(const Node& node) const {
    auto attributes = node.attributes;
    std::vector<ValueId> inputs = node.inputs;
    if (node.op == "Dropout") {
      attributes.clear();
      inputs.resize(1);
    }
    if (node.op == "BatchNormalization") attributes.erase("training_mode");
    return node_text(node.op, node.name, names(inputs), names(node.outputs), attributes);
  }

  /// Others run recurrent layers with time in front alone: a layer with the batch there is turned round.
  std::string recurrent(const Node& node) const {
    if (node.integer("layout", 0) == 0) return plain(node);
    auto attributes = node.attributes;
    attributes.erase("layout");
    std::vector<std::string> inputs = names(node.inputs), outputs = names(node.outputs);
    std::string before, behind;
    const auto turn = [&](std::string& text, const std::string& from, const std::string& to,
                          const std::vector<std::int64_t>& order) {
      text += node_text("Transpose", to + ".turned", {from}, {to}, {{"perm", order}});
    };
    for (const std::size_t i : {0, 5, 6}) {
      if (i >= inputs.size() || inputs[i].empty()) continue;
      const std::string turned = node.name + ".input" + std::to_string(i);
      turn(before, inputs[i], turned, {1, 0, 2});
      inputs[i] = turned;
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].empty()) continue;
      const std::string turned = node.name + ".output" + std::to_string(i);
      turn(behind, turned, outputs[i],
           i == 0 ? std::vector<std::int64_t>{2, 0, 1, 3} : std::vector<std::int64_t>{1, 0, 2});
      outputs[i] = turned;
    }
    return before + node_text(node.op, node.name, inputs, outputs, attributes) + behind;
  }

  const Graph& graph_;
  std::map<std::string, at::Tensor> given_;
};

}  // namespace

void write_onnx(const std::string& path, const Graph& graph, const std::vector<NamedTensor>& tensors,
                const OnnxOptions& options) {
  constexpr std::uint64_t most = std::uint64_t{2'000'000'000};  // a message of protobuf has 2 GiB at most
  Writer writer(graph, tensors);
  const auto initializers = writer.initializers();
  std::uint64_t size = 0;
  for (const auto& [value, tensor] : initializers) size += tensor.nbytes();
  const bool external = options.external || size > most;

  std::string content = writer.nodes() + bytes(2, "trainyard");
  Whole model(path);
  std::optional<Whole> beside;
  if (external) beside.emplace(path + ".data");
  std::uint64_t offset = 0;
  for (const auto& [value, tensor] : initializers) {
    std::string text;
    for (const std::int64_t dim : tensor.sizes()) text += integer(1, dim);
    text += integer(2, type_of(value->name, tensor.scalar_type())) + bytes(8, value->name);
    const auto* const data = static_cast<const char*>(tensor.const_data_ptr());
    // What shapes are made of stays in the file: programs look at it before they look at any other.
    if (beside && tensor.is_floating_point()) {
      const auto entry = [](const std::string& key, const std::string& said) {
        return bytes(13, bytes(1, key) + bytes(2, said));
      };
      text += entry("location", std::filesystem::path(path).filename().string() + ".data") +
              entry("offset", std::to_string(offset)) + entry("length", std::to_string(tensor.nbytes())) +
              integer(14, 1);
      beside->write(data, tensor.nbytes());
      offset += tensor.nbytes();
      const std::string padding((64 - offset % 64) % 64, '\0');  // for programs that map it
      beside->write(padding.data(), padding.size());
      offset += padding.size();
    } else {
      text += bytes(9, std::string(data, tensor.nbytes()));
    }
    content += bytes(5, text);
  }
  content += writer.inputs_and_outputs();
  const std::string head = integer(1, 11) + bytes(2, "trainyard") + bytes(3, TRAINYARD_SDK_VERSION);
  const std::string end =
      bytes(8, bytes(1, "") + integer(2, 23)) + bytes(14, bytes(1, "source") + bytes(2, options.source));
  const std::string whole = head + bytes(7, content) + end;
  model.write(whole.data(), whole.size());
  if (beside) beside->finish();
  model.finish();
}
