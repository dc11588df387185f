// trainyard ckpt ls, inspect, verify, diff, convert: shows, checks and converts checkpoints, without LibTorch. A
// path is a checkpoint, a folder of some, or the directory of a run; where one checkpoint is meant, it is the
// newest of them.
#include <algorithm>
#include <functional>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include <trainyard/formats/append_file.hpp>

#include "core/cli/run_file.hpp"
#include "core/programs/ckpt_diff.hpp"
#include "core/programs/ckpt_text.hpp"
#include "core/programs/programs.hpp"
#include "core/rundir/checked_file.hpp"
#include "core/rundir/codecs.hpp"
#include "core/rundir/folder.hpp"
#include "core/rundir/run_directory.hpp"
#include "lib/printed.hpp"

namespace trainyard::cli {
namespace {

using checkpoint::Manifest;
using checkpoint::StateEntry;
using checkpoint::TensorEntry;
using nlohmann::ordered_json;

struct CkptArguments {
  std::string path, other;
  Format format = Format::text;
  bool values = false;
};

const std::string place = "run directory, folder of checkpoints, or checkpoint";

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

int ls(CkptArguments& given) {
  auto json = ordered_json::array();
  const std::optional<std::string> best = checkpoint::best(given.path);
  for (const std::string& each : checkpoint::find(given.path)) {
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
    if (given.format == Format::text) std::cout << text.str() << '\n';
  }
  if (given.format == Format::json) std::cout << json.dump(2) << '\n';
  return 0;
}

int inspect(CkptArguments& given) {
  const std::string checkpoint = checkpoint::find(given.path).back();
  const Manifest manifest = checkpoint::read_manifest(checkpoint);
  if (given.format == Format::json) {
    ordered_json json = json_of(manifest);
    json["checkpoint"] = checkpoint;
    std::cout << json.dump(2) << '\n';
    return 0;
  }
  std::cout << checkpoint << "\nstep      " << manifest.step << "\nwritten   " << manifest.written << '\n';
  if (!manifest.metrics.empty()) std::cout << "metrics   " << metrics_text(manifest) << '\n';
  for (const checkpoint::FileEntry& file : manifest.files)
    std::cout << "file      " << file.name << ", " << size_text(file.size) << '\n';
  for (const StateEntry& state : manifest.states) {
    std::cout << '\n' << state.owner << ' ' << state.version << '\n';
    for (const auto& [name, value] : state.scalars)
      std::cout << "  " << name << " = " << text_of(value) << '\n';
    for (const TensorEntry& tensor : manifest.tensors)
      if (tensor.owner == state.owner)
        std::cout << "  " << tensor.name << "  " << text_of(tensor) << "  " << size_text(tensor.length)
                  << (tensor.codec.empty() ? "" : " by " + tensor.codec + ", of " + size_text(tensor.size))
                  << "  " << tensor.digest.substr(0, 12) << '\n';
  }
  return 0;
}

int verify(CkptArguments& given) {
  auto json = ordered_json::array();
  bool whole = true;
  for (const std::string& each : checkpoint::find(given.path)) {
    const std::vector<std::string> damages = checkpoint::verify(each);
    whole = whole && damages.empty();
    json.push_back({{"checkpoint", each}, {"damages", damages}});
    if (given.format == Format::json) continue;
    std::cout << each << (damages.empty() ? ": whole\n" : ": damaged\n");
    for (const std::string& damage : damages) std::cout << "  " << damage << '\n';
  }
  if (given.format == Format::json) std::cout << json.dump(2) << '\n';
  return whole ? 0 : static_cast<int>(ExitCode::data);
}

/// Writes the file as it would be without a codec.
void decode_into(AppendFile& file, const checkpoint::CheckedFile& coded, std::vector<TensorEntry> tensors) {
  const auto size = [](const TensorEntry& each) { return each.codec.empty() ? each.length : each.size; };
  const auto width = [&](const TensorEntry& each) {
    std::uint64_t elements = 1;
    for (const std::int64_t length : each.shape) elements *= static_cast<std::uint64_t>(length);
    return elements == 0 ? 0 : size(each) / elements;
  };
  std::ranges::sort(tensors, {}, &TensorEntry::name);
  std::ranges::stable_sort(tensors, std::greater(), width);  // so every tensor is aligned
  auto header = nlohmann::json::object();  // in the order of names, as the writer of checkpoints has it
  header["__metadata__"] = {{"format", "pt"}};
  std::uint64_t offset = 0;
  for (const TensorEntry& each : tensors) {
    header[checkpoint::stored_name(each.owner, each.name)] = {
        {"dtype", each.dtype}, {"shape", each.shape}, {"data_offsets", {offset, offset + size(each)}}};
    offset += size(each);
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  file.append({reinterpret_cast<const char*>(&length), sizeof length});
  file.append(text);
  for (const TensorEntry& each : tensors) file.append(coded.bytes_of(each));
}

int convert(CkptArguments& given) {
  const std::string checkpoint = checkpoint::find(given.path).back();
  const Manifest manifest = checkpoint::read_manifest(checkpoint);
  const auto entry =
      std::find_if(manifest.files.begin(), manifest.files.end(),
                   [](const checkpoint::FileEntry& each) { return each.name == "model.safetensors"; });
  if (entry == manifest.files.end()) throw DataError(checkpoint + ": holds no weights of a model");
  const checkpoint::CheckedFile weights(checkpoint, *entry);
  weights.check_size();
  weights.check_header();
  std::vector<TensorEntry> tensors = manifest.tensors;
  std::erase_if(tensors, [&](const TensorEntry& each) { return each.file != entry->name; });
  for (const TensorEntry& tensor : tensors) weights.check(tensor);

  lib::NewFile made(given.other);
  AppendFile copy(made.temporary(), AppendFile::Mode::replace);
  if (std::ranges::any_of(tensors, [](const TensorEntry& each) { return !each.codec.empty(); }))
    decode_into(copy, weights, std::move(tensors));
  else
    weights.read(0, entry->size, [&](std::string_view bytes) { copy.append(bytes); });
  report::put_in_place(made);
  std::cout << given.other << ": weights of step " << manifest.step << ", " << size_text(entry->size) << '\n';
  return 0;
}

int diff(CkptArguments& given) {
  return static_cast<int>(ckpt_diff(given.path, given.other, given.values, given.format, std::cout));
}

}  // namespace

void add_ckpt(Arguments verb, CommandLine& line) {
  checkpoint::find_codecs_in([] { return plugins::Registry::scan(plugin_folders({})); });
  const auto given = std::make_shared<CkptArguments>();
  const auto add = [&](const char* name, const char* help, int (*action)(CkptArguments&)) {
    Arguments added = verb.verb(name, help);
    added.add("path", given->path, place).required().run();
    when_chosen(added, line, given, action);
    return added;
  };
  add_format(add("ls", "the checkpoints, oldest first", ls), given->format);
  add_format(add("inspect", "what the newest of them holds", inspect), given->format);
  add_format(add("verify", "read every byte and name every damage", verify), given->format);
  Arguments compare = add("diff", "scalars and tensors in which two differ", diff);
  compare.add("other", given->other, place).required().run();
  compare.flag("--values", given->values, "say by how much elements of tensors differ");
  add_format(compare, given->format);
  add("convert", "copy the weights of the newest into one safetensors file", convert)
      .add("file", given->other, "safetensors file to write")
      .required();
}

}  // namespace trainyard::cli
