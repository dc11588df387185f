#include "core/rundir/manifest.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include <trainyard/error.hpp>

#include "lib/sha256.hpp"

namespace trainyard::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr int format = 1, format_in_parts = 2, format_coded = 3;
constexpr std::string_view before_digest = "{\n\"digest\": \"";
constexpr std::size_t digest_length = 64;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw DataError(path + ": " + what);
}

/// Returns the digest of the whole text, computed with zeros in place of the digest itself.
std::string digest_of(std::string text) {
  text.replace(before_digest.size(), digest_length, digest_length, '0');
  return lib::Sha256::of(text);
}

bool is_utf8(const std::string& text) {
  try {
    (void)Json(text).dump();
    return true;
  } catch (const Json::type_error&) {
    return false;
  }
}

std::string bytes_of(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    unsigned byte = 0;
    std::from_chars(text.data() + i, text.data() + i + 2, byte, 16);
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

/// A scalar keeps its JSON type. What JSON cannot express is an object: a number that is not finite as
/// {"double": its 64 bits}, a text that is not UTF-8 as {"bytes": ...}, both in hexadecimal.
Json json_of(double value) {
  if (std::abs(value) <= std::numeric_limits<double>::max()) return value;
  char bits[17];
  std::snprintf(bits, sizeof bits, "%016llx",
                static_cast<unsigned long long>(std::bit_cast<std::uint64_t>(value)));
  return {{"double", bits}};
}

Json json_of(const Scalar& value) {
  if (const auto* held = std::get_if<double>(&value)) return json_of(*held);
  if (const auto* held = std::get_if<bool>(&value)) return *held;
  if (const auto* held = std::get_if<std::int64_t>(&value)) return *held;
  const auto& text = std::get<std::string>(value);
  if (is_utf8(text)) return text;
  return {{"bytes", lib::hex_of(text)}};
}

Scalar scalar_of(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.contains("bytes")) return bytes_of(json.at("bytes").get<std::string>());
  const auto bits = json.at("double").get<std::string>();
  std::uint64_t value = 0;
  std::from_chars(bits.data(), bits.data() + bits.size(), value, 16);
  return std::bit_cast<double>(value);
}

Json json_of(const StateEntry& state) {
  Json scalars = Json::object();
  for (const auto& [name, value] : state.scalars) scalars[name] = json_of(value);
  return {{"owner", state.owner}, {"version", state.version}, {"scalars", std::move(scalars)}};
}

StateEntry state_of(const Json& json) {
  StateEntry state{.owner = json.at("owner"), .version = json.at("version"), .scalars = {}};
  for (const auto& [name, value] : json.at("scalars").items()) state.scalars.emplace(name, scalar_of(value));
  return state;
}

Json json_of(const FileEntry& file) {
  return {{"name", file.name},
          {"size", file.size},
          {"header", file.header},
          {"header_digest", file.header_digest}};
}

FileEntry file_of(const Json& json) {
  return {.name = json.at("name"),
          .size = json.at("size"),
          .header = json.at("header"),
          .header_digest = json.at("header_digest")};
}

Json json_of(const TensorEntry& tensor) {
  Json json = {{"owner", tensor.owner},   {"name", tensor.name},    {"dtype", tensor.dtype},
               {"shape", tensor.shape},   {"file", tensor.file},    {"offset", tensor.offset},
               {"length", tensor.length}, {"digest", tensor.digest}};
  for (const PartEntry& part : tensor.parts)
    json["parts"].push_back({{"length", part.length}, {"digest", part.digest}});
  if (!tensor.codec.empty()) json.update({{"codec", tensor.codec}, {"size", tensor.size}});
  return json;
}

TensorEntry tensor_of(const Json& json) {
  TensorEntry tensor{.owner = json.at("owner"),
                     .name = json.at("name"),
                     .dtype = json.at("dtype"),
                     .shape = json.at("shape"),
                     .file = json.at("file"),
                     .offset = json.at("offset"),
                     .length = json.at("length"),
                     .digest = json.at("digest")};
  for (const Json& part : json.value("parts", Json::array()))
    tensor.parts.push_back({.length = part.at("length"), .digest = part.at("digest")});
  if (json.contains("codec")) json.at("codec").get_to(tensor.codec), json.at("size").get_to(tensor.size);
  return tensor;
}

/// Writes one element a line, so that two manifests can be compared by eye.
template <class Entry>
std::string list_text(const std::vector<Entry>& entries) {
  std::string text = "[";
  for (const Entry& entry : entries) text += (text.size() > 1 ? ",\n  " : "\n  ") + json_of(entry).dump();
  return text + (entries.empty() ? "]" : "\n]");
}

Manifest parse(std::string_view text) {
  const Json json = Json::parse(text);
  Manifest manifest;
  manifest.step = json.at("step");
  manifest.written = json.at("written");
  for (const auto& [name, value] : json.at("metrics").items())
    manifest.metrics.emplace(name, std::get<double>(scalar_of(value)));
  for (const Json& each : json.at("states")) manifest.states.push_back(state_of(each));
  for (const Json& each : json.at("files")) manifest.files.push_back(file_of(each));
  for (const Json& each : json.at("tensors")) manifest.tensors.push_back(tensor_of(each));
  return manifest;
}

/// Returns whether `size` is what type ("F32") and shape make.
bool is_size_of(const TensorEntry& tensor) {
  const std::string_view type = tensor.dtype;
  const std::size_t digit = type.find_first_of("1368");
  std::uint64_t bits = type == "BOOL" ? 8 : 0, bytes = 0;
  if (digit != type.npos) std::from_chars(type.data() + digit, type.data() + type.size(), bits);
  bytes = bits / 8;
  for (const std::int64_t each : tensor.shape)
    if (each < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(each), &bytes)) return false;
  return bits > 0 && bytes == tensor.size;
}

/// Checks that each byte of each file belongs to its header or to one tensor, and each tensor to a state.
void check(const Manifest& manifest, const std::string& path) {
  std::set<std::string_view> owners;
  for (const StateEntry& state : manifest.states)
    if (!owners.insert(state.owner).second) fail(path, "two states of \"" + state.owner + "\"");
  std::map<std::string_view, std::vector<const TensorEntry*>> tensors;
  for (const FileEntry& file : manifest.files) {
    const bool plain = !file.name.empty() && file.name.find('/') == std::string::npos && file.name[0] != '.';
    if (!plain) fail(path, "\"" + file.name + "\" is no name of a file beside it");
    if (!tensors.try_emplace(file.name).second) fail(path, "the file \"" + file.name + "\" stands twice");
  }
  for (const TensorEntry& tensor : manifest.tensors) {
    const auto file = tensors.find(tensor.file);
    if (file == tensors.end() || !owners.contains(tensor.owner))
      fail(path, "tensor \"" + tensor.name + "\" lies in no known file, or belongs to no state");
    file->second.push_back(&tensor);
    std::uint64_t covered = 0;
    for (const PartEntry& part : tensor.parts) covered += part.length;
    // A longer one would be asked memory for.
    if (!tensor.codec.empty() && (!tensor.parts.empty() || !is_size_of(tensor)))
      fail(path, "tensor \"" + tensor.name + "\" has a code, and not the size of its type and shape");
    if (!tensor.parts.empty() && (covered != tensor.length || digest_of(tensor.parts) != tensor.digest))
      fail(path, "the parts of tensor \"" + tensor.name + "\" are not all of it");
  }
  for (const FileEntry& file : manifest.files) {
    auto& inside = tensors[file.name];
    std::sort(inside.begin(), inside.end(), [](const TensorEntry* a, const TensorEntry* b) {
      return std::tie(a->offset, a->length) < std::tie(b->offset, b->length);
    });
    std::uint64_t covered = file.header;
    if (covered > file.size) fail(path, "the header of \"" + file.name + "\" ends after it");
    for (const TensorEntry* tensor : inside) {
      if (tensor->offset != covered || tensor->length > file.size - covered)
        fail(path, "tensor \"" + tensor->name +
                       "\" does not begin where the one before it ends, or ends after \"" + file.name + "\"");
      covered += tensor->length;
    }
    if (covered != file.size) fail(path, "bytes of \"" + file.name + "\" belong to no tensor");
  }
}

}  // namespace

std::string stored_name(std::string_view owner, std::string_view name) {
  return owner == "model" ? std::string(name) : std::string(owner) + ":" + std::string(name);
}

std::string code_name(std::string_view owner, std::string_view name, std::string_view codec) {
  return stored_name(owner, name) + "|" + std::string(codec);
}

std::string digest_of(const std::vector<PartEntry>& parts) {
  std::string digests;
  for (const PartEntry& part : parts) digests += part.digest;
  return lib::Sha256::of(digests);
}

std::string to_text(const Manifest& manifest) {
  Json metrics = Json::object();
  for (const auto& [name, value] : manifest.metrics) metrics[name] = json_of(value);
  const bool in_parts =
      std::ranges::any_of(manifest.tensors, [](const TensorEntry& each) { return !each.parts.empty(); });
  std::string text(before_digest);
  text.append(digest_length, '0');
  const bool coded =
      std::ranges::any_of(manifest.tensors, [](const TensorEntry& each) { return !each.codec.empty(); });
  text += "\",\n\"format\": " + std::to_string(coded ? format_coded : in_parts ? format_in_parts : format);
  text += ",\n\"step\": " + std::to_string(manifest.step);
  text += ",\n\"written\": " + Json(manifest.written).dump();
  text += ",\n\"metrics\": " + metrics.dump();
  text += ",\n\"states\": " + list_text(manifest.states);
  text += ",\n\"files\": " + list_text(manifest.files);
  text += ",\n\"tensors\": " + list_text(manifest.tensors) + "\n}\n";
  return text.replace(before_digest.size(), digest_length, digest_of(text));
}

Manifest from_text(std::string_view text, const std::string& path) {
  if (!text.starts_with(before_digest) || text.size() < before_digest.size() + digest_length)
    fail(path, "does not begin as a manifest of a checkpoint: it is damaged, or another file");
  if (text.substr(before_digest.size(), digest_length) != digest_of(std::string(text)))
    fail(path, "is not as it was written: its SHA-256 is not the one that stands in it");
  try {
    if (const int found = Json::parse(text).at("format"); found < format || found > format_coded)
      fail(path, "is of format " + std::to_string(found) + ", this host reads format " +
                     std::to_string(format_coded) + " and those before it");
    Manifest manifest = parse(text);
    check(manifest, path);
    return manifest;
  } catch (const Json::exception& error) {
    fail(path, std::string("is no manifest of a checkpoint: ") + error.what());
  } catch (const std::bad_variant_access&) {
    fail(path, "is no manifest of a checkpoint: a metric is no number");
  }
}

}  // namespace trainyard::checkpoint
