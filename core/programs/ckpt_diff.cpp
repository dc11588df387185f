#include "core/programs/ckpt_diff.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/programs/ckpt_text.hpp"
#include "core/programs/values.hpp"
#include "core/rundir/folder.hpp"
#include "core/rundir/protocol.hpp"
#include "core/runfile/value_json.hpp"

namespace trainyard::cli {
namespace {

using checkpoint::Manifest;
using checkpoint::StateEntry;
using checkpoint::TensorEntry;
using control::Json;

/// An item of a checkpoint that can differ.
struct Part {
  std::string what, digest;  ///< a full description; for a tensor, with the digest of its bytes
  const TensorEntry* tensor = nullptr;

  std::string text() const { return digest.empty() ? what : what + " " + digest.substr(0, 12); }
  bool same_as(const Part& other) const { return what == other.what && digest == other.digest; }
};
using Parts = std::map<std::string, Part>;

/// Returns the items of a manifest, which must outlive them.
Parts parts_of(const Manifest& manifest) {
  Parts parts;
  for (const StateEntry& state : manifest.states) {
    parts["state " + state.owner] = {"version " + state.version, ""};
    for (const auto& [name, value] : state.scalars)
      parts["scalar " + state.owner + ":" + name] = {text_of(value), ""};
  }
  for (const TensorEntry& tensor : manifest.tensors)
    parts["tensor " + tensor.owner + ":" + tensor.name] = {text_of(tensor), tensor.digest, &tensor};
  return parts;
}

/// One of the two checkpoints that are compared.
struct Side {
  explicit Side(const std::string& path)
      : checkpoint(checkpoint::find(path).back()),
        manifest(checkpoint::read_manifest(checkpoint)),
        parts(parts_of(manifest)) {}
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  const Part* find(const std::string& name) const {
    const auto part = parts.find(name);
    return part == parts.end() ? nullptr : &part->second;
  }
  checkpoint::CheckedFile file_of(const TensorEntry& tensor) const {
    return {checkpoint, *std::find_if(manifest.files.begin(), manifest.files.end(),
                                      [&](const auto& file) { return file.name == tensor.file; })};
  }

  std::string checkpoint;
  Manifest manifest;
  Parts parts;
};

struct Difference {
  std::string name, a, b;
  std::optional<checkpoint::ValueDifference> values;
  std::string not_compared;  ///< why tensors in both checkpoints have no `values`
};

void compare_values(const Side& a, const TensorEntry& before, const Side& b, const TensorEntry& after,
                    Difference& difference) {
  if (const char* why = checkpoint::why_not_comparable(before, after))
    difference.not_compared = why;
  else
    difference.values = checkpoint::compare_values(a.file_of(before), before, b.file_of(after), after);
}

/// Compares bytes of tensors that were saved by different numbers of ranks, whose digests do not compare.
bool same_bytes(const Side& a, const Part& before, const Side& b, const Part& after) {
  if (before.tensor == nullptr || after.tensor == nullptr || before.what != after.what ||
      before.tensor->parts.size() == after.tensor->parts.size())
    return false;
  return !checkpoint::why_not_comparable(*before.tensor, *after.tensor) &&
         checkpoint::compare_values(a.file_of(*before.tensor), *before.tensor, b.file_of(*after.tensor),
                                    *after.tensor)
                 .differ == 0;
}

std::string block_of(const Difference& difference) {
  std::string text = difference.name + "\n  - " + difference.a + "\n  + " + difference.b + "\n";
  if (!difference.not_compared.empty())
    return text + "    values not compared: " + difference.not_compared + "\n";
  if (!difference.values) return text;
  const checkpoint::ValueDifference& values = *difference.values;
  return text + "    " + std::to_string(values.differ) + " of " + std::to_string(values.elements) +
         " elements differ, by at most " + text_of(values.largest_absolute) + ", relatively " +
         text_of(values.largest_relative) + "; the first at " + Json(values.first).dump() + "\n";
}

Json json_of(const Difference& difference) {
  Json json = {{"what", difference.name}, {"a", difference.a}, {"b", difference.b}};
  if (!difference.not_compared.empty()) json["not_compared"] = difference.not_compared;
  if (const auto& values = difference.values)
    json["values"] = {{"elements", values->elements},
                      {"differ", values->differ},
                      {"largest_absolute", config::json_of(values->largest_absolute)},
                      {"largest_relative", config::json_of(values->largest_relative)},
                      {"first", values->first}};
  return json;
}

}  // namespace

ExitCode ckpt_diff(const std::string& a, const std::string& b, bool values, Format format,
                   std::ostream& out) {
  const Side before(a), after(b);
  Parts all = before.parts;
  all.insert(after.parts.begin(), after.parts.end());
  std::vector<Difference> differences;
  for (const auto& [name, part] : all) {
    const Part *old = before.find(name), *now = after.find(name);
    if (old != nullptr && now != nullptr && (old->same_as(*now) || same_bytes(before, *old, after, *now)))
      continue;
    Difference& difference = differences.emplace_back();
    difference.name = name;
    difference.a = old == nullptr ? "absent" : old->text();
    difference.b = now == nullptr ? "absent" : now->text();
    if (values && part.tensor != nullptr && old != nullptr && now != nullptr)
      compare_values(before, *old->tensor, after, *now->tensor, difference);
  }
  const auto rank = [](const Difference& each) {
    return std::pair(each.values.has_value(), each.values ? -each.values->largest_relative : 0.0);
  };
  std::stable_sort(differences.begin(), differences.end(),
                   [&](const Difference& x, const Difference& y) { return rank(x) < rank(y); });
  if (format == Format::text) {
    for (const Difference& each : differences) out << block_of(each);
    out << differences.size() << " of " << all.size() << " differ\n";
    return ExitCode::done;
  }
  auto json = Json::array();
  for (const Difference& each : differences) json.push_back(json_of(each));
  out << Json{{"a", before.checkpoint}, {"b", after.checkpoint}, {"of", all.size()}, {"differences", json}}
             .dump(2)
      << '\n';
  return ExitCode::done;
}

}  // namespace trainyard::cli
