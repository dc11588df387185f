#include "core/cli/ckpt_verbs.hpp"

#include <algorithm>
#include <iomanip>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include <trainyard/formats/append_file.hpp>

#include "core/cli/ckpt_text.hpp"
#include "core/rundir/checked_file.hpp"
#include "core/rundir/folder.hpp"
#include "core/rundir/run_directory.hpp"
#include "lib/printed.hpp"

namespace trainyard::cli {
namespace {

using checkpoint::Manifest;
using checkpoint::StateEntry;
using checkpoint::TensorEntry;
using nlohmann::ordered_json;

std::string size_text(std::uint64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return lib::printed(unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

std::uint64_t size_of(const Manifest& manifest) {
  std::uint64_t size = 0;
  for (const checkpoint::FileEntry& file : manifest.files) size += file.size;
  return size;
}

std::string metrics_text(const Manifest& manifest) {
  std::string text;
  for (const auto& [name, value] : manifest.metrics)
    text += (text.empty() ? "" : "  ") + name + " " + text_of(value);
  return text;
}

/// Returns the manifest, which is JSON, without its digest of itself, which would mislead elsewhere.
ordered_json json_of(const Manifest& manifest) {
  ordered_json json = ordered_json::parse(checkpoint::to_text(manifest));
  json.erase("digest");
  return json;
}

}  // namespace

ExitCode ckpt_ls(const std::string& path, Format format, std::ostream& out) {
  auto json = ordered_json::array();
  const std::optional<std::string> best = checkpoint::best(path);
  for (const std::string& each : checkpoint::find(path)) {
    ordered_json line = {{"checkpoint", each}, {"best", each == best}};
    std::ostringstream text;
    text << std::left << std::setw(14) << each.substr(each.rfind('/') + 1) << "  ";
    try {
      const Manifest manifest = checkpoint::read_manifest(each);
      line.update({{"step", manifest.step},
                   {"written", manifest.written},
                   {"bytes", size_of(manifest)},
                   {"tensors", manifest.tensors.size()},
                   {"metrics", json_of(manifest).at("metrics")}});
      text << manifest.written << "  " << std::right << std::setw(10) << size_text(size_of(manifest)) << "  "
           << std::setw(5) << manifest.tensors.size() << " tensors  " << metrics_text(manifest)
           << (each == best ? "  best" : "");
    } catch (const DataError& error) {
      line["damage"] = error.what();
      text << "damaged: " << error.what();
    }
    json.push_back(std::move(line));
    if (format == Format::text) out << text.str() << '\n';
  }
  if (format == Format::json) out << json.dump(2) << '\n';
  return ExitCode::done;
}

ExitCode ckpt_inspect(const std::string& path, Format format, std::ostream& out) {
  const std::string checkpoint = checkpoint::find(path).back();
  const Manifest manifest = checkpoint::read_manifest(checkpoint);
  if (format == Format::json) {
    ordered_json json = json_of(manifest);
    json["checkpoint"] = checkpoint;
    out << json.dump(2) << '\n';
    return ExitCode::done;
  }
  out << checkpoint << "\nstep      " << manifest.step << "\nwritten   " << manifest.written << '\n';
  if (!manifest.metrics.empty()) out << "metrics   " << metrics_text(manifest) << '\n';
  for (const checkpoint::FileEntry& file : manifest.files)
    out << "file      " << file.name << ", " << size_text(file.size) << '\n';
  for (const StateEntry& state : manifest.states) {
    out << '\n' << state.owner << ' ' << state.version << '\n';
    for (const auto& [name, value] : state.scalars) out << "  " << name << " = " << text_of(value) << '\n';
    for (const TensorEntry& tensor : manifest.tensors)
      if (tensor.owner == state.owner)
        out << "  " << tensor.name << "  " << text_of(tensor) << "  " << size_text(tensor.length) << "  "
            << tensor.digest.substr(0, 12) << '\n';
  }
  return ExitCode::done;
}

ExitCode ckpt_verify(const std::string& path, Format format, std::ostream& out) {
  auto json = ordered_json::array();
  bool whole = true;
  for (const std::string& each : checkpoint::find(path)) {
    const std::vector<std::string> damages = checkpoint::verify(each);
    whole = whole && damages.empty();
    json.push_back({{"checkpoint", each}, {"damages", damages}});
    if (format == Format::json) continue;
    out << each << (damages.empty() ? ": whole\n" : ": damaged\n");
    for (const std::string& damage : damages) out << "  " << damage << '\n';
  }
  if (format == Format::json) out << json.dump(2) << '\n';
  return whole ? ExitCode::done : ExitCode::data;
}

ExitCode ckpt_convert(const std::string& path, const std::string& file, std::ostream& out) {
  const std::string checkpoint = checkpoint::find(path).back();
  const Manifest manifest = checkpoint::read_manifest(checkpoint);
  const auto entry =
      std::find_if(manifest.files.begin(), manifest.files.end(),
                   [](const checkpoint::FileEntry& each) { return each.name == "model.safetensors"; });
  if (entry == manifest.files.end()) throw DataError(checkpoint + ": holds no weights of a model");
  const checkpoint::CheckedFile weights(checkpoint, *entry);
  weights.check_size();
  weights.check_header();
  for (const TensorEntry& tensor : manifest.tensors)
    if (tensor.file == entry->name) weights.check(tensor);

  lib::NewFile made(file);
  AppendFile copy(made.temporary(), AppendFile::Mode::replace);
  weights.read(0, entry->size, [&](std::string_view bytes) { copy.append(bytes); });
  report::put_in_place(made);
  out << file << ": weights of step " << manifest.step << ", " << size_text(entry->size) << '\n';
  return ExitCode::done;
}

}  // namespace trainyard::cli
