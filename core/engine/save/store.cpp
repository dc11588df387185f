#include "core/engine/save/store.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>
#include <trainyard/formats/append_file.hpp>
#include <trainyard/formats/safetensors.hpp>

#include "core/plugins/sha256.hpp"
#include "core/rundir/folder.hpp"
#include "core/rundir/manifest.hpp"
#include "core/rundir/run_directory.hpp"

namespace trainyard::checkpoint {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what) {
  throw DataError(what + ": " + std::strerror(errno));
}

/// A tensor on its way into a file.
struct Item {
  const std::string* owner;
  const std::string* name;
  const at::Tensor* tensor;
};

std::string file_of(std::string_view owner) {
  if (owner == "model") return "model.safetensors";
  return owner.starts_with("optimizer") ? "optimizer.safetensors" : "state.safetensors";
}

void write_file(const std::string& folder, const std::string& name, std::vector<Item> items,
                Manifest& manifest) {
  // The widest elements first: every tensor then lies aligned, as the format's readers want it.
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return a.tensor->element_size() > b.tensor->element_size();
  });
  const std::string path = folder + "/" + name;
  std::vector<NamedTensor> tensors;
  tensors.reserve(items.size());
  for (const Item& item : items) tensors.push_back({stored_name(*item.owner, *item.name), *item.tensor});
  const std::string header = safetensors_header(path, tensors, {{"format", "pt"}});
  const auto described = nlohmann::json::parse(header.substr(sizeof(std::uint64_t)));

  AppendFile file(path, AppendFile::Mode::create);
  file.append(header);
  for (std::size_t i = 0; i < items.size(); ++i) {
    TensorEntry entry{.owner = *items[i].owner,
                      .name = *items[i].name,
                      .dtype = described.at(tensors[i].name).at("dtype"),
                      .shape = items[i].tensor->sizes().vec(),
                      .file = name,
                      .offset = static_cast<std::uint64_t>(file.size()),
                      .length = items[i].tensor->nbytes(),
                      .digest = {}};
    const at::Tensor plain = items[i].tensor->detach().cpu().contiguous();
    std::string_view rest(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
    plugins::Sha256 hash;
    while (!rest.empty()) {
      const std::string_view piece = rest.substr(0, 1 << 20);  // hashed and written while it is in the cache
      hash.update(piece.data(), piece.size());
      file.append(piece);
      rest.remove_prefix(piece.size());
    }
    entry.digest = hash.hex();
    manifest.tensors.push_back(std::move(entry));
  }
  file.sync();
  manifest.files.push_back({.name = name,
                            .size = static_cast<std::uint64_t>(file.size()),
                            .header = header.size(),
                            .header_digest = plugins::Sha256::of(header)});
}

void write_text(const std::string& path, std::string_view text) {
  AppendFile file(path, AppendFile::Mode::create);
  file.append(text);
  file.sync();
}

void write_checkpoint(const std::string& folder, const Snapshot& snapshot) {
  if (::mkdir(folder.c_str(), 0755) != 0) fail("cannot make '" + folder + "'");
  Manifest manifest{.step = snapshot.step,
                    .written = report::timestamp(),
                    .metrics = snapshot.metrics,
                    .states = {},
                    .files = {},
                    .tensors = {}};
  std::map<std::string, std::vector<Item>> files;
  for (const std::vector<State>* states : {&snapshot.states, &snapshot.fixed})
    for (const State& state : *states) {
      manifest.states.push_back({state.owner, state.version, state.scalars});
      for (const auto& [name, tensor] : state.tensors)
        files[file_of(state.owner)].push_back({&state.owner, &name, &tensor});
    }
  for (auto& [name, items] : files) write_file(folder, name, std::move(items), manifest);
  const std::string path = folder + "/" + manifest_name, text = to_text(manifest);
  (void)from_text(text, path);  // what could not be read is not committed
  write_text(path, text);
  report::sync_folder(folder);
}

/// Gives the folder its name. Where another has it they change places, in one step where the file system can:
/// there is no moment without a checkpoint.
void publish(const std::string& temporary, const std::string& path, const std::string& aside) {
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno == EEXIST &&
      ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0)
    return;
  if (errno != EINVAL && errno != ENOSYS) fail("cannot rename '" + temporary + "' to '" + path + "'");
  // A network file system that knows neither: two steps.
  const bool replaced = ::rename(path.c_str(), aside.c_str()) == 0;
  if (::rename(temporary.c_str(), path.c_str()) == 0) return;
  const int reason = errno;
  if (replaced) ::rename(aside.c_str(), path.c_str());
  errno = reason;
  fail("cannot rename '" + temporary + "' to '" + path + "'");
}

/// Steps with the best values of a metric, the best first; of equal ones the older is the better.
std::vector<std::int64_t> ranked(const std::vector<std::string>& checkpoints, const KeepBest& wish) {
  std::vector<std::pair<double, std::int64_t>> values;
  for (const std::string& checkpoint : checkpoints) {
    try {
      const Manifest manifest = read_manifest(checkpoint);
      const auto value = manifest.metrics.find(wish.metric);
      if (value == manifest.metrics.end() || std::isnan(value->second)) continue;
      values.emplace_back(wish.mode == "max" ? -value->second : value->second, *step_of(checkpoint));
    } catch (const DataError&) {
      // Damaged: not among the best. Loading tells of it.
    }
  }
  std::sort(values.begin(), values.end());
  std::vector<std::int64_t> steps;
  for (const auto& [value, step] : values)
    if (std::ssize(steps) < wish.k) steps.push_back(step);
  return steps;
}

}  // namespace

Store::Store(std::string folder, Retention retention)
    : folder_(std::move(folder)), retention_(std::move(retention)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error)
    throw DataError("cannot make the folder of the checkpoints '" + folder_ + "': " + error.message() +
                    "; set run.output_dir to a folder that can be written");
  report::sync_folder(folder_ + "/..");
  sweep(folder_);
}

std::string Store::temporary_name(const std::string& path, const char* why) {
  return path + why + std::to_string(::getpid()) + "-" + std::to_string(++temporaries_);
}

void Store::commit(const Snapshot& snapshot) {
  const std::string name = folder_name(snapshot.step), path = folder_ + "/" + name;
  const std::string temporary = temporary_name(path, ".tmp-"), aside = temporary_name(path, ".old-");
  const std::string latest = folder_ + "/latest", next_latest = temporary_name(latest, ".tmp-");
  std::error_code ignored;
  const auto undo = [&] {
    fs::remove_all(temporary, ignored);
    fs::remove(next_latest, ignored);
  };
  try {
    write_checkpoint(temporary, snapshot);
    write_text(next_latest, name + "\n");  // before the commit: a full disk is met here
    publish(temporary, path, aside);
  } catch (const Error&) {
    undo();
    throw;
  } catch (const std::exception& error) {  // of LibTorch or the JSON library: a tensor, a name
    undo();
    throw DataError("cannot write '" + path + "': " + error.what());
  }
  report::sync_folder(folder_);
  {
    const std::lock_guard lock(mutex_);
    committed_.push_back(path);
  }
  if (::rename(next_latest.c_str(), latest.c_str()) != 0) fail("cannot replace '" + latest + "'");
  // The one that was replaced.
  fs::remove_all(temporary, ignored);
  fs::remove_all(aside, ignored);
  retain(snapshot.step);
}

void Store::retain(std::int64_t committed) {
  const std::vector<std::string> all = list(folder_);
  std::vector<std::string> course;  // that led to this step
  for (const std::string& each : all)
    if (*step_of(each) <= committed) course.push_back(each);
  std::set<std::int64_t> kept;
  for (auto each = course.rbegin(); each != course.rend() && std::ssize(kept) < retention_.keep_last; ++each)
    kept.insert(*step_of(*each));
  std::int64_t reached = 0;  // multiples of keep_every
  for (const std::string& each : course)
    if (retention_.keep_every > 0 && *step_of(each) / retention_.keep_every > reached) {
      reached = *step_of(each) / retention_.keep_every;
      kept.insert(*step_of(each));
    }
  if (retention_.keep_best) {
    const std::vector<std::int64_t> steps = ranked(course, *retention_.keep_best);
    kept.insert(steps.begin(), steps.end());
    if (!steps.empty()) name_best(folder_name(steps.front()));
  }

  // First under names that do not count, and these on the disk, so that none is ever seen half removed. What
  // resists is no harm to the run: it stays, or is swept at the next start.
  std::vector<std::string> removed;
  for (const std::string& each : all) {
    if (kept.contains(*step_of(each))) continue;
    const std::string aside = temporary_name(each, ".old-");
    if (::rename(each.c_str(), aside.c_str()) == 0) removed.push_back(aside);
  }
  if (removed.empty()) return;
  report::sync_folder(folder_);
  std::error_code ignored;
  for (const std::string& each : removed) fs::remove_all(each, ignored);
}

/// Ahead of what it was so far being removed.
void Store::name_best(const std::string& name) {
  const std::string best = folder_ + "/best", next = temporary_name(best, ".tmp-");
  write_text(next, name + "\n");
  if (::rename(next.c_str(), best.c_str()) != 0) fail("cannot replace '" + best + "'");
}

std::vector<std::string> Store::take_committed() {
  const std::lock_guard lock(mutex_);
  return std::exchange(committed_, {});
}

}  // namespace trainyard::checkpoint
