// What a shard of embedding tables can be loaded from: a base with all rows, and on top of it the newest
// record of each row that was written since. A folder of safetensors files and a manifest, which has the
// SHA-256 of every tensor and of itself. What the manifest does not name does not exist: a write is complete
// when the manifest that names it is renamed into place, and until then the folder holds the one before. The image
// that a base has replaced stays until the next base: it is loaded where a file of the newer one is damaged.
//
//   ShardImage image(folder);
//   image.write_base(0, tables);
//   image.write_records(100, {{"tables.3.weight", rows, values}});
//   for (const ShardTable& table : image.load_whole()) ...
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <trainyard/error.hpp>
#include <trainyard/formats/append_file.hpp>
#include <trainyard/formats/safetensors.hpp>
#include <trainyard/state.hpp>

#include "lib/new_file.hpp"
#include "lib/read_file.hpp"

namespace cpr {

using namespace trainyard;

/// Waits until the names in a folder are on the disk.
inline void sync_folder(const std::string& folder) {
  if (const auto failure = lib::sync_folder(folder)) throw DataError(failure->what);
}

/// Replaces a file of the folder in one step, on the disk when this returns. Throws DataError; the file is as it
/// was then.
inline void replace_file(const std::string& folder, const std::string& name, const std::string& text) {
  lib::NewFile file(folder + "/" + name);
  AppendFile(file.temporary(), AppendFile::Mode::replace).append(text);
  if (const auto failure = file.put_in_place()) throw DataError(failure->what);
}

/// What is kept of each row, by name: "weight", and what the optimizer holds of it, such as "sum". Each
/// tensor [rows, ...], on the CPU.
using RowValues = std::map<std::string, at::Tensor>;

struct ShardTable {
  std::string name;
  RowValues values;
  at::Tensor saved_at;  ///< [rows] int64: the step that each row is of; not read by write_base
};

/// Rows of a table as they are at a step.
struct RowRecords {
  std::string table;
  std::vector<std::int64_t> rows;  ///< each at most once
  RowValues values;                ///< of the same names as the base has, [rows.size(), ...]
};

/// One process and thread at a time has a folder. Everything throws DataError with the path, and where bytes
/// are damaged with the tensor.
class ShardImage {
 public:
  explicit ShardImage(std::string folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
    try {
      if (has(manifest_name) || has(before_name))
        files_ = read_manifest(has(manifest_name) ? manifest_name : before_name);
    } catch (const DataError& error) {
      if (!has(before_name)) throw;
      go_back(error);
    }
    sweep();
  }

  bool empty() const { return files_.empty(); }
  /// Of the newest write.
  std::int64_t step() const { return files_.empty() ? 0 : files_.back().step; }
  /// All rows are at least as new as this.
  std::int64_t base_step() const { return files_.empty() ? 0 : files_.front().step; }
  /// What was found damaged, where the image is the one before because of that; empty: nothing was.
  const std::string& damage() const { return damage_; }
  /// Files of records on top of the base.
  std::size_t records() const { return files_.empty() ? 0 : files_.size() - 1; }

  /// All rows of all tables as they are at `step`.
  void write_base(std::int64_t step, const std::vector<ShardTable>& tables) {
    std::vector<NamedTensor> tensors;
    for (const ShardTable& table : tables) {
      const std::int64_t rows = rows_of(table.name, table.values);
      for (const auto& [name, values] : table.values) tensors.push_back({key(table.name, name), values});
      tensors.push_back({key(table.name, saved_name), at::full({rows}, step, at::kLong)});
    }
    commit_base(step, tensors);
  }

  /// Adds the records of a step after that of the newest write, or of the same.
  void write_records(std::int64_t step, const std::vector<RowRecords>& records) {
    if (files_.empty()) throw DataError(folder_ + ": records need a base under them; write that first");
    if (step < this->step())
      throw DataError(folder_ + ": records of step " + std::to_string(step) + " come after those of step " +
                      std::to_string(this->step()));
    std::vector<NamedTensor> tensors;
    for (const RowRecords& record : records) {
      const auto count = static_cast<std::int64_t>(record.rows.size());
      if (rows_of(record.table, record.values) != count)
        throw DataError(folder_ + ": " + record.table + " has values for " +
                        std::to_string(rows_of(record.table, record.values)) + " rows, and names " +
                        std::to_string(count));
      const at::Tensor rows = at::empty({count}, at::kLong);
      std::copy(record.rows.begin(), record.rows.end(), rows.mutable_data_ptr<std::int64_t>());
      tensors.push_back({key(record.table, rows_name), rows});
      for (const auto& [name, values] : record.values) tensors.push_back({key(record.table, name), values});
    }
    std::vector<File> files = files_;
    files.push_back(write_file("records", step, tensors));
    commit(std::move(files));
  }

  /// Folds all records into a new base: rows keep the steps that they are of.
  void compact() {
    if (records() == 0) return;
    std::vector<NamedTensor> tensors;
    for (ShardTable& table : load()) {
      for (auto& [name, values] : table.values) tensors.push_back({key(table.name, name), values});
      tensors.push_back({key(table.name, saved_name), table.saved_at});
    }
    commit_base(step(), tensors);
  }

  /// Every row as it was last written; where a file of that is damaged, as the image before has it, from which this
  /// one then goes on.
  std::vector<ShardTable> load_whole() {
    std::vector<ShardTable> tables;
    try {
      tables = load();
    } catch (const DataError& error) {
      if (!damage_.empty() || !has(before_name)) throw;
      go_back(error);
      tables = load();
    }
    if (damage_.empty()) return tables;
    commit(files_);  // else the next base would keep the damaged manifest as that of the image before it
    sweep();
    return tables;
  }

  /// Every row as it was last written.
  std::vector<ShardTable> load() const {
    if (files_.empty()) throw DataError(folder_ + ": there is no base to load");
    std::map<std::string, ShardTable> tables;
    for (auto& [name, tensor] : read_file(files_.front())) {
      const auto [table, value] = parts(name);
      tables[table].name = table;
      (value == saved_name ? tables[table].saved_at : tables[table].values[value]) = tensor;
    }
    for (auto file = files_.begin() + 1; file != files_.end(); ++file) {
      const Tensors records = read_file(*file);
      for (const auto& [name, tensor] : records)
        if (const auto [table, value] = parts(name); value == rows_name)
          apply(*file, tables, table, tensor, records);
    }
    std::vector<ShardTable> result;
    for (auto& [name, table] : tables) result.push_back(std::move(table));
    return result;
  }

 private:
  using Tensors = std::map<std::string, at::Tensor>;
  struct File {
    std::string name;
    std::int64_t step = 0;
    std::map<std::string, std::string> digests;  ///< by tensor
  };
  static constexpr const char* manifest_name = "manifest";
  static constexpr const char* before_name = "manifest.before";  ///< of the image that the base has replaced
  static constexpr const char* rows_name = "@rows";              ///< which rows a record has
  static constexpr const char* saved_name = "@saved";            ///< which steps the rows of a base are of

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  bool has(const std::string& name) const { return std::filesystem::exists(path(name)); }
  static std::string key(const std::string& table, const std::string& value) { return table + "|" + value; }
  static std::pair<std::string, std::string> parts(const std::string& key) {
    const std::size_t bar = key.rfind('|');
    return {key.substr(0, bar), key.substr(bar + 1)};
  }

  std::int64_t rows_of(const std::string& table, const RowValues& values) const {
    if (values.empty()) throw DataError(folder_ + ": " + table + " has nothing to write of its rows");
    const std::int64_t rows = values.begin()->second.size(0);
    for (const auto& [name, tensor] : values)
      if (tensor.size(0) != rows)
        throw DataError(folder_ + ": " + table + " has " + std::to_string(tensor.size(0)) + " rows of " +
                        name + " and " + std::to_string(rows) + " of " + values.begin()->first);
    return rows;
  }

  File write_file(const char* what, std::int64_t step, const std::vector<NamedTensor>& tensors) const {
    File file{.name = {}, .step = step, .digests = {}};
    // A name that no file has, or had: a write that was cut short is swept, never continued.
    for (std::int64_t number = 0; file.name.empty() || std::filesystem::exists(path(file.name)); ++number)
      file.name =
          std::string(what) + "-" + std::to_string(step) + "-" + std::to_string(number) + ".safetensors";
    for (const NamedTensor& each : tensors) file.digests[each.name] = digest(each.tensor);
    write_safetensors(path(file.name), tensors);
    return file;
  }

  Tensors read_file(const File& file) const {
    Tensors tensors;
    for (NamedTensor& each : read_safetensors(path(file.name))) tensors[each.name] = std::move(each.tensor);
    for (const auto& [name, expected] : file.digests) {
      const auto found = tensors.find(name);
      if (found == tensors.end())
        throw DataError(path(file.name) + ": tensor \"" + name + "\" of the manifest is not in it");
      if (digest(found->second) != expected)
        throw DataError(path(file.name) + ": the bytes of tensor \"" + name +
                        "\" are not those that were written: the file is damaged");
    }
    if (tensors.size() != file.digests.size())
      throw DataError(path(file.name) + ": it has " + std::to_string(tensors.size()) +
                      " tensors, the manifest " + std::to_string(file.digests.size()));
    return tensors;
  }

  void apply(const File& file, std::map<std::string, ShardTable>& tables, const std::string& name,
             const at::Tensor& rows, const Tensors& records) const {
    const auto found = tables.find(name);
    if (found == tables.end()) throw DataError(path(file.name) + ": the base has no table " + name);
    ShardTable& table = found->second;
    const std::int64_t most = table.saved_at.size(0);
    if (rows.numel() > 0 && (rows.min().item<std::int64_t>() < 0 || rows.max().item<std::int64_t>() >= most))
      throw DataError(path(file.name) + ": " + name + " has records of rows that its base, of " +
                      std::to_string(most) + " rows, lacks");
    for (auto& [value, tensor] : table.values) {
      const auto newer = records.find(key(name, value));
      if (newer == records.end())
        throw DataError(path(file.name) + ": the records of " + name + " have no " + value);
      tensor.index_copy_(0, rows, newer->second);
    }
    table.saved_at.index_fill_(0, rows, file.step);
  }

  void go_back(const DataError& damage) {
    damage_ = damage.what();
    files_ = read_manifest(before_name);
  }

  /// A kill between the two renames leaves the image before, which is whole.
  void commit_base(std::int64_t step, const std::vector<NamedTensor>& tensors) {
    const File base = write_file("base", step, tensors);
    if (has(manifest_name)) std::filesystem::rename(path(manifest_name), path(before_name));
    commit({base});
    damage_.clear();
    sweep();
  }

  /// The files, which are on the disk, become what the folder holds.
  void commit(std::vector<File> files) {
    sync_folder(folder_);  // their names, too, ahead of the manifest that gives them
    nlohmann::json list = nlohmann::json::array();
    for (const File& file : files)
      list.push_back({{"file", file.name}, {"step", file.step}, {"tensors", file.digests}});
    const std::string text = list.dump(1);
    replace_file(folder_, manifest_name, digest_of(text) + "\n" + text);
    files_ = std::move(files);
  }

  std::vector<File> read_manifest(const char* name) const {
    const std::string whole = lib::read_file(path(name)).value_or("");
    const std::size_t end = whole.find('\n');
    if (end == std::string::npos || digest_of(whole.substr(end + 1)) != whole.substr(0, end))
      throw DataError(path(name) + ": its bytes are not those that were written: the file is damaged");
    std::vector<File> files;
    for (const nlohmann::json& entry : nlohmann::json::parse(whole.substr(end + 1)))
      files.push_back({entry["file"], entry["step"], entry["tensors"]});
    return files;
  }

  /// Removes what a write that was cut short left, and what neither image names.
  void sweep() const {
    std::set<std::string> kept;
    for (const File& file : files_) kept.insert(file.name);
    try {
      if (has(before_name))
        for (const File& file : read_manifest(before_name)) kept.insert(file.name);
    } catch (const DataError&) {
      // It is of no use any more, and the next base replaces it.
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      const bool ours = name.starts_with("base-") || name.starts_with("records-");
      if (ours && !kept.contains(name)) std::filesystem::remove(entry.path());
    }
  }

  static std::string digest_of(const std::string& text) {
    const at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
    return digest(bytes);
  }

  std::string folder_;
  std::vector<File> files_;  ///< the base, and the records in the order of their steps
  std::string damage_;
};

}  // namespace cpr
