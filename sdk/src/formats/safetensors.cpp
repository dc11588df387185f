#include <trainyard/formats/safetensors.hpp>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/new_file.hpp"
#include "plain_file.hpp"

namespace trainyard {
namespace {

using formats::fail, formats::File;
using nlohmann::json;

constexpr std::uint64_t longest_header = 100'000'000;  // the reference implementation's bound

struct DtypeName {
  at::ScalarType type;
  const char* name;
};
constexpr DtypeName dtype_names[] = {{at::kFloat, "F32"},     {at::kDouble, "F64"}, {at::kHalf, "F16"},
                                     {at::kBFloat16, "BF16"}, {at::kLong, "I64"},   {at::kInt, "I32"},
                                     {at::kShort, "I16"},     {at::kChar, "I8"},    {at::kByte, "U8"},
                                     {at::kBool, "BOOL"}};

const DtypeName* find_dtype(at::ScalarType type) {
  const auto* known = std::ranges::find(dtype_names, type, &DtypeName::type);
  return known == std::end(dtype_names) ? nullptr : known;
}

struct Placed {
  std::string name;
  at::ScalarType type;
  std::vector<std::int64_t> shape;
  std::uint64_t begin, end;
};

Placed parse_entry(const std::string& path, const std::string& name, const json& entry,
                   std::uint64_t available) {
  const std::string who = "tensor \"" + name + "\": ";
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets") || !entry["dtype"].is_string() || !entry["shape"].is_array() ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2)
    fail(path, who + "an entry needs exactly dtype, shape and data_offsets");
  Placed placed{.name = name, .type = at::kFloat, .shape = {}, .begin = 0, .end = 0};
  placed.type = safetensors_type(path, who, entry["dtype"].get<std::string>());
  std::uint64_t bytes = at::elementSize(placed.type);
  for (const json& dimension : entry["shape"]) {
    if (!dimension.is_number_unsigned()) fail(path, who + "a dimension is no natural number");
    const auto length = dimension.get<std::uint64_t>();
    if (length > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
        (length != 0 && bytes > std::numeric_limits<std::uint64_t>::max() / length))
      fail(path, who + "its shape overflows");
    bytes *= length;
    placed.shape.push_back(static_cast<std::int64_t>(length));
  }
  const json& offsets = entry["data_offsets"];
  if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    fail(path, who + "data_offsets are no natural numbers");
  placed.begin = offsets[0].get<std::uint64_t>();
  placed.end = offsets[1].get<std::uint64_t>();
  if (placed.begin > placed.end || placed.end > available)
    fail(path, who + "data_offsets [" + std::to_string(placed.begin) + ", " + std::to_string(placed.end) +
                   "] lie outside the " + std::to_string(available) + " bytes of data");
  if (placed.end - placed.begin != bytes)
    fail(path, who + "its shape and dtype need " + std::to_string(bytes) + " bytes, data_offsets span " +
                   std::to_string(placed.end - placed.begin));
  return placed;
}

json parse_header(const std::string& path, const std::string& text) {
  std::set<std::string> seen;
  std::string twice;
  const auto top_keys = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth == 1 && event == json::parse_event_t::key && !seen.insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  json header = json::parse(text, top_keys, /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object()) fail(path, "the header is not a JSON object");
  if (!twice.empty()) fail(path, "tensor \"" + twice + "\" stands twice in the header");
  return header;
}

}  // namespace

std::string safetensors_dtype(at::ScalarType type) {
  const DtypeName* known = find_dtype(type);
  return known == nullptr ? "" : known->name;
}

at::ScalarType safetensors_type(const std::string& path, const std::string& who, std::string_view dtype) {
  for (const DtypeName& each : dtype_names)
    if (dtype == each.name) return each.type;
  fail(path, who + "unknown dtype \"" + std::string(dtype) + "\"");
}

std::string safetensors_header(const std::string& path, const std::vector<NamedTensor>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const NamedTensor& each : tensors) {
    const DtypeName* known = find_dtype(each.tensor.scalar_type());
    if (known == nullptr)
      fail(path, "tensor \"" + each.name + "\" has a dtype that the format does not know");
    if (header.contains(each.name)) fail(path, "two tensors are called \"" + each.name + "\"");
    const std::uint64_t end = offset + each.tensor.nbytes();
    header[each.name] = {
        {"dtype", known->name}, {"shape", each.tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // tensors start aligned
  const auto length = static_cast<std::uint64_t>(text.size());
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string header = safetensors_header(path, tensors, metadata);
  lib::NewFile made(path);
  File file(made.temporary(), O_WRONLY | O_CREAT | O_TRUNC);
  file.write(header.data(), header.size());
  for (const NamedTensor& each : tensors) {
    const at::Tensor bytes = each.tensor.detach().cpu().contiguous();
    file.write(bytes.const_data_ptr(), bytes.nbytes());
  }
  if (const auto failure = made.put_in_place()) fail(path, std::strerror(failure->reason));
}

std::vector<NamedTensor> read_safetensors(const std::string& path, const RowsWanted& wanted) {
  File file(path, O_RDONLY);
  const std::uint64_t size = file.size();
  std::uint64_t length = 0;
  if (size < sizeof length) fail(path, "too short for a safetensors file");
  file.read(&length, sizeof length);
  if (length > longest_header || length > size - sizeof length)
    fail(path,
         "the header claims " + std::to_string(length) + " bytes; the file has " + std::to_string(size));
  std::string text(length, '\0');
  file.read(text.data(), text.size());
  const json header = parse_header(path, text);

  std::vector<Placed> placed;
  for (const auto& [name, entry] : header.items())
    if (name != "__metadata__")
      placed.push_back(parse_entry(path, name, entry, size - sizeof length - length));
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::uint64_t expected = 0;
  std::vector<NamedTensor> tensors;
  for (const Placed& each : placed) {
    if (each.begin != expected)
      fail(path, "tensor \"" + each.name + "\" begins at byte " + std::to_string(each.begin) + ", " +
                     (each.begin < expected ? "inside the one before" : "after a gap") + " that ends at " +
                     std::to_string(expected));
    expected = each.end;
    std::vector<std::int64_t> shape = each.shape;
    std::uint64_t begin = sizeof length + length + each.begin;
    if (const auto rows = wanted(each.name, shape); rows && shape.front() > 0) {
      begin += (each.end - each.begin) / static_cast<std::uint64_t>(shape.front()) *
               static_cast<std::uint64_t>(rows->first);
      shape.front() = rows->second - rows->first;
    }
    at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(each.type));
    file.read_at(begin, tensor.mutable_data_ptr(), tensor.nbytes());
    tensors.push_back({each.name, std::move(tensor)});
  }
  if (expected != size - sizeof length - length) fail(path, "bytes after the last tensor belong to none");
  return tensors;
}

}  // namespace trainyard
