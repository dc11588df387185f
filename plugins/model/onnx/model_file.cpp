#include "model_file.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "wire.hpp"

#include "lib/read_file.hpp"

namespace onnx {
namespace {

TensorData tensor(std::string_view message, std::string_view file) {
  TensorData result;
  std::map<std::string, std::string> external;
  bool elsewhere = false;
  for (Fields f(message, file); f.next();) switch (f.number()) {
      case 1: f.append(result.dims); break;
      case 2: result.type = f.integer(); break;
      case 4: f.append(result.floats); break;
      case 5:
      case 7:
      case 11: f.append(result.integers); break;
      case 8: result.name = f.text(); break;
      case 9: result.raw = f.bytes(); break;
      case 10: f.append(result.doubles); break;
      case 13: {
        std::string key, value;
        for (Fields entry(f.bytes(), file); entry.next();) {
          if (entry.number() == 1) key = entry.text();
          if (entry.number() == 2) value = entry.text();
        }
        external[key] = value;
        break;
      }
      case 14: elsewhere = f.integer() == 1; break;
      default: break;
    }
  if (elsewhere) result.external = std::move(external);
  return result;
}

SparseData sparse(std::string_view message, std::string_view file) {
  SparseData result;
  for (Fields f(message, file); f.next();) switch (f.number()) {
      case 1: result.values = tensor(f.bytes(), file); break;
      case 2: result.indices = tensor(f.bytes(), file); break;
      case 3: f.append(result.dims); break;
      default: break;
    }
  return result;
}

/// The value is the field that its type says; files of old have no type: then that which is there.
std::pair<std::string, AttributeValue> attribute(std::string_view message, std::string_view file) {
  std::string name;
  std::int64_t type = 0;
  AttributeValue value;
  std::vector<std::int64_t> integers;
  std::vector<float> floats;
  std::vector<std::string> texts;
  for (Fields f(message, file); f.next();) switch (f.number()) {
      case 1: name = f.text(); break;
      case 2: value = f.single(); break;
      case 3: value = f.integer(); break;
      case 4: value = f.text(); break;
      case 5: value = tensor(f.bytes(), file); break;
      case 6:
      case 11: value = Subgraph(); break;
      case 7: f.append(floats); break;
      case 8: f.append(integers); break;
      case 9: texts.push_back(f.text()); break;
      case 20: type = f.integer(); break;
      case 22: value = sparse(f.bytes(), file); break;
      default: break;
    }
  // Lists may be empty, and zeros left out.
  if (type == 6 || !floats.empty())
    value = std::move(floats);
  else if (type == 7 || !integers.empty())
    value = std::move(integers);
  else if (type == 8 || !texts.empty())
    value = std::move(texts);
  else if (type == 1 && std::holds_alternative<std::monostate>(value))
    value = 0.0f;
  else if (type == 2 && std::holds_alternative<std::monostate>(value))
    value = std::int64_t{0};
  else if (type == 3 && std::holds_alternative<std::monostate>(value))
    value = std::string();
  return {std::move(name), std::move(value)};
}

FileNode node(std::string_view message, std::string_view file) {
  FileNode result;
  for (Fields f(message, file); f.next();) switch (f.number()) {
      case 1: result.inputs.push_back(f.text()); break;
      case 2: result.outputs.push_back(f.text()); break;
      case 3: result.name = f.text(); break;
      case 4: result.op = f.text(); break;
      case 5: result.attributes.insert(attribute(f.bytes(), file)); break;
      case 7: result.domain = f.text(); break;
      default: break;
    }
  return result;
}

std::vector<std::optional<std::int64_t>> shape(std::string_view message, std::string_view file) {
  std::vector<std::optional<std::int64_t>> result;
  for (Fields f(message, file); f.next();) {
    if (f.number() != 1) continue;
    std::optional<std::int64_t> dim;
    for (Fields d(f.bytes(), file); d.next();)
      if (d.number() == 1) dim = d.integer();
    result.push_back(dim);
  }
  return result;
}

FileValue value(std::string_view message, std::string_view file) {
  FileValue result;
  for (Fields f(message, file); f.next();) {
    if (f.number() == 1) result.name = f.text();
    if (f.number() != 2) continue;
    for (Fields type(f.bytes(), file); type.next();) {
      if (type.number() != 1) continue;
      for (Fields t(type.bytes(), file); t.next();) {
        if (t.number() == 1) result.type = t.integer();
        if (t.number() == 2) result.shape = shape(t.bytes(), file);
      }
    }
  }
  return result;
}

void graph(std::string_view message, ModelFile& model) {
  const std::string_view file = model.bytes;
  for (Fields f(message, file); f.next();) switch (f.number()) {
      case 1: model.nodes.push_back(node(f.bytes(), file)); break;
      case 5: model.initializers.push_back(tensor(f.bytes(), file)); break;
      case 11: model.inputs.push_back(value(f.bytes(), file)); break;
      case 12: model.outputs.push_back(value(f.bytes(), file)); break;
      case 15: model.sparse_initializers.push_back(sparse(f.bytes(), file)); break;
      default: break;
    }
}

void parse(ModelFile& model) {
  bool has_graph = false;
  for (Fields f(model.bytes, model.bytes); f.next();) {
    if (f.number() == 7) {
      graph(f.bytes(), model);
      has_graph = true;
    }
    if (f.number() != 8) continue;
    std::string domain;
    std::int64_t version = 0;
    for (Fields opset(f.bytes(), model.bytes); opset.next();) {
      if (opset.number() == 1) domain = opset.text();
      if (opset.number() == 2) version = opset.integer();
    }
    if (domain.empty() || domain == "ai.onnx") model.opset = version;
  }
  if (!has_graph) throw DataError("holds no graph: it is no ONNX model");
}

}  // namespace

void read_model(const std::string& path, ModelFile& model) {
  model.path = path;
  if (std::filesystem::is_directory(path)) throw DataError(path + ": is a folder, not an ONNX file");
  auto bytes = lib::read_file(path);
  if (!bytes) throw DataError(path + ": cannot be read: " + std::strerror(errno));
  model.bytes = *std::move(bytes);
  try {
    parse(model);
  } catch (const DataError& error) {
    throw DataError(path + ": " + error.what());
  }
}

TensorData parse_tensor(std::string_view bytes) {
  return tensor(bytes, bytes);
}

}  // namespace onnx
