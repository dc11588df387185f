#include "core/engine/save/store.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <utility>

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <trainyard/error.hpp>
#include <trainyard/formats/append_file.hpp>
#include <trainyard/formats/safetensors.hpp>
#include <trainyard/formats/shared_safetensors.hpp>

#include "core/rundir/folder.hpp"
#include "core/rundir/manifest.hpp"
#include "core/rundir/run_directory.hpp"
#include "lib/sha256.hpp"

namespace trainyard::checkpoint {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what) {
  throw DataError(what + ": " + std::strerror(errno));
}

void write_text(const std::string& path, std::string_view text) {
  AppendFile file(path, AppendFile::Mode::create);
  file.append(text);
  file.sync();
}

void make_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0755) != 0) fail("cannot make '" + folder + "'");
}

/// Returns the code of a tensor in place of it where that is shorter.
Item encoded(Item item, const StoredBy& by) {
  if (by.codec == nullptr || item.tensor.numel() == 0 || safetensors_dtype(item.tensor.scalar_type()).empty())
    return item;
  const at::Tensor plain = item.tensor.detach().cpu().contiguous();
  const std::span bytes(static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes());
  TensorEntry entry{.owner = item.owner,
                    .name = item.name,
                    .dtype = safetensors_dtype(plain.scalar_type()),
                    .shape = plain.sizes().vec(),
                    .file = {},
                    .digest = {},
                    .codec = by.name,
                    .size = bytes.size()};
  const TensorForm form{entry.dtype, entry.shape};
  const auto room = static_cast<std::int64_t>(by.codec->bound(form, bytes.size()));
  at::Tensor code = at::empty({room}, at::TensorOptions(at::kByte));
  const std::size_t length = by.codec->encode(
      form, bytes, {static_cast<std::byte*>(code.mutable_data_ptr()), static_cast<std::size_t>(room)});
  if (length >= bytes.size()) return item;
  entry.digest = lib::Sha256::of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  item.tensor = code.narrow(0, 0, static_cast<std::int64_t>(length)).clone();  // without the room after it
  item.coded = std::move(entry);
  return item;
}

void write_checkpoint(const std::string& folder, const Snapshot& snapshot, const Written& written,
                      const StoredBy& codec) {
  make_folder(folder);
  Manifest manifest{.step = snapshot.step,
                    .written = report::timestamp(),
                    .metrics = snapshot.metrics,
                    .states = {},
                    .files = {},
                    .tensors = {}};
  for (const FileEntry& file : written.files)
    fs::rename(written.folder + "/" + file.name, folder + "/" + file.name);
  std::map<std::string, std::vector<Item>> files;
  for (const std::vector<State>* states : {&snapshot.states, &snapshot.fixed})
    for (const State& state : *states) {
      manifest.states.push_back({state.owner, state.version, state.scalars});
      for (const auto& [name, tensor] : state.tensors)
        files[file_of(state.owner)].push_back(encoded({state.owner, name, tensor, {}}, codec));
    }
  Written here{.folder = folder, .files = {}, .tensors = {}};
  for (auto& [name, items] : files) write_file(name, std::move(items), nullptr, here);
  for (const Written* each : {&std::as_const(here), &written}) {
    manifest.files.insert(manifest.files.end(), each->files.begin(), each->files.end());
    manifest.tensors.insert(manifest.tensors.end(), each->tensors.begin(), each->tensors.end());
  }
  const std::string path = folder + "/" + manifest_name, text = to_text(manifest);
  (void)from_text(text, path);  // what could not be read again is not committed
  write_text(path, text);
  report::sync_folder(folder);
}

}  // namespace

std::string file_of(std::string_view owner) {
  if (owner == "model") return "model.safetensors";
  return owner.starts_with("optimizer") ? "optimizer.safetensors" : "state.safetensors";
}

void write_file(const std::string& name, std::vector<Item> items, RankGroup* ranks, Written& to) {
  // Widest elements first: so every tensor is aligned, as readers of the format require.
  std::ranges::stable_sort(items, std::greater(),
                           [](const Item& item) { return item.tensor.element_size(); });
  std::vector<SharedTensor> tensors;
  for (const Item& item : items)
    tensors.push_back({item.coded ? code_name(item.owner, item.name, item.coded->codec)
                                  : stored_name(item.owner, item.name),
                       item.tensor, item.rows});
  const WrittenFile file = write_together(to.folder + "/" + name, tensors, ranks, {{"format", "pt"}});
  for (std::size_t i = 0; i < items.size(); ++i) {
    const WrittenTensor& tensor = file.tensors[i];
    TensorEntry& entry =
        to.tensors.emplace_back(TensorEntry{items[i].owner, items[i].name, tensor.dtype, tensor.shape, name,
                                            tensor.offset, tensor.length, tensor.digest});
    for (const auto& [length, digest] : tensor.parts) entry.parts.push_back({length, digest});
    if (items[i].rows) entry.digest = digest_of(entry.parts);
    if (!items[i].coded) continue;
    TensorEntry coded = std::move(*items[i].coded);
    coded.file = entry.file;
    coded.offset = entry.offset;
    coded.length = entry.length;
    entry = std::move(coded);
  }
  to.files.push_back({name, file.size, file.header, file.header_digest});
}

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

std::string Store::folder_ahead(std::int64_t step) {
  std::string folder = fs::absolute(temporary_name(folder_ + "/" + folder_name(step), ".tmp-")).string();
  make_folder(folder);
  return folder;
}

void Store::take(std::int64_t step, Written written) {
  const std::lock_guard lock(mutex_);
  written_[step] = std::move(written);
}

void Store::commit(const Snapshot& snapshot) {
  const std::string name = folder_name(snapshot.step), path = folder_ + "/" + name;
  const std::string temporary = temporary_name(path, ".tmp-"), aside = temporary_name(path, ".old-");
  const std::string latest = folder_ + "/latest", next_latest = temporary_name(latest, ".tmp-");
  std::error_code ignored;
  Written written;
  {
    const std::lock_guard lock(mutex_);
    if (auto ahead = written_.extract(snapshot.step)) written = std::move(ahead.mapped());
  }
  const auto undo = [&] {
    fs::remove_all(temporary, ignored);
    if (!written.folder.empty()) fs::remove_all(written.folder, ignored);
    fs::remove(next_latest, ignored);
  };
  try {
    write_checkpoint(temporary, snapshot, written, codec_);
    write_text(next_latest, name + "\n");  // before the commit, so that a full disk is noticed here
    publish(temporary, path, aside);
  } catch (const Error&) {
    undo();
    throw;
  } catch (const std::exception& error) {  // from LibTorch or the JSON library: a tensor, a name
    undo();
    throw DataError("cannot write '" + path + "': " + error.what());
  }
  report::sync_folder(folder_);
  {
    const std::lock_guard lock(mutex_);
    committed_.push_back(path);
  }
  if (::rename(next_latest.c_str(), latest.c_str()) != 0) fail("cannot replace '" + latest + "'");
  // Remove the checkpoint that was replaced.
  fs::remove_all(temporary, ignored);
  if (!written.folder.empty()) fs::remove_all(written.folder, ignored);
  fs::remove_all(aside, ignored);
  retain(snapshot.step);
}

void Store::retain(std::int64_t committed) {
  const std::vector<std::string> all = list(folder_);
  std::vector<std::string> course;  // the checkpoints that led to this step
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
    const std::vector<std::int64_t> steps = best_steps(
        course, retention_.keep_best->metric, retention_.keep_best->mode == "max", retention_.keep_best->k);
    kept.insert(steps.begin(), steps.end());
    if (!steps.empty()) name_best(folder_name(steps.front()));
  }

  // They are first renamed to names that do not count, and synced, so that none is ever seen half removed.
  // One that cannot be removed does no harm: it stays, or is swept at the next start.
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

/// Renames a new file over `best`, before the checkpoint that it named is removed.
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
