// The file calls of this process, written down: included by one unit of a program, it stands in front of the
// C library's. Nothing waits for the real disk: what a sync is worth is the business of the model (disk.hpp).
#pragma once

#include <cstdarg>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tools/chaos/disk.hpp"

namespace trainyard::chaos {

class Recorder {
 public:
  /// Writes down what is done within `folder`, which is empty, from here on.
  void begin(const std::string& folder) {
    const std::lock_guard lock(mutex_);
    calls_.clear();
    nodes_ = {{inode(AT_FDCWD, folder.c_str()), 0}};
    made_ = 0;
    on_ = true;
  }
  std::vector<Call> end() {
    const std::lock_guard lock(mutex_);
    on_ = false;
    return std::exchange(calls_, {});
  }
  void mark(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    if (on_)
      calls_.push_back({.what = Call::What::mark, .name = {}, .to = {}, .offset = number, .bytes = {}});
  }

  /// A name in a folder; `node`: the folder's, or -1 where nobody wants to know.
  struct Place {
    int node = -1;
    std::string name;
  };
  Place place(int at, const std::string& path) const {
    const std::size_t last = path.find_last_not_of('/');
    const std::string plain = path.substr(0, last + 1);
    const std::size_t slash = plain.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : plain.substr(0, slash);
    return {node(inode(at, folder.c_str())), slash == std::string::npos ? plain : plain.substr(slash + 1)};
  }
  int node_at(int at, const char* path) const { return node(inode(at, path)); }
  int node_of(int descriptor) const { return node(inode(descriptor, "")); }

  void make(Call::What what, int at, const char* path) {
    const Place where = place(at, path);
    if (where.node < 0) return;
    nodes_[inode(at, path)] = ++made_;
    calls_.push_back(
        {.what = what, .node = made_, .folder = where.node, .name = where.name, .to = {}, .bytes = {}});
  }
  void change(Call::What what, const Place& from, const std::string& to = {}) {
    if (from.node >= 0)
      calls_.push_back({.what = what, .node = from.node, .name = from.name, .to = to, .bytes = {}});
  }
  void content(Call::What what, int node, std::int64_t offset = 0, std::string bytes = {}) {
    if (node >= 0)
      calls_.push_back(
          {.what = what, .node = node, .name = {}, .to = {}, .offset = offset, .bytes = std::move(bytes)});
  }

  /// One call at a time, so that they are written down in the order in which they were made.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  bool on() const { return on_; }

 private:
  using Inode = std::pair<dev_t, ino_t>;
  static Inode inode(int at, const char* path) {
    struct stat status {};
    if (::fstatat(at, path, &status, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0) return {};
    return {status.st_dev, status.st_ino};
  }
  int node(const Inode& inode) const {
    const auto found = nodes_.find(inode);
    return found == nodes_.end() ? -1 : found->second;
  }

  std::mutex mutex_;
  bool on_ = false;
  int made_ = 0;
  std::map<Inode, int> nodes_;
  std::vector<Call> calls_;
};

/// Never destroyed: files are closed after everything else.
inline Recorder& recorder() {
  static auto* const made = new Recorder;
  return *made;
}

template <class Function>
Function next(Function, const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace trainyard::chaos

// NOLINTBEGIN(readability-identifier-naming,cert-dcl50-cpp)
#define TRAINYARD_REAL(name) static const auto real = trainyard::chaos::next(&::name, #name)

extern "C" {

inline int recorded_open(int (*real)(int, const char*, int, ...), int at, const char* path, int flags,
                         mode_t mode) {
  using namespace trainyard::chaos;
  const auto lock = recorder().lock();
  if (!recorder().on() || (flags & (O_CREAT | O_TRUNC)) == 0) return real(at, path, flags, mode);
  const bool there = ::faccessat(at, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  const int descriptor = real(at, path, flags, mode);
  if (descriptor < 0) return descriptor;
  if (!there)
    recorder().make(Call::What::make_file, at, path);
  else if ((flags & O_TRUNC) != 0)
    recorder().content(Call::What::cut, recorder().node_of(descriptor));
  return descriptor;
}

#define TRAINYARD_MODE                             \
  mode_t mode = 0;                                 \
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {      \
    va_list rest;                                  \
    va_start(rest, flags);                         \
    mode = static_cast<mode_t>(va_arg(rest, int)); \
    va_end(rest);                                  \
  }

__attribute__((visibility("default"))) int openat(int at, const char* path, int flags, ...) {
  TRAINYARD_REAL(openat);
  TRAINYARD_MODE
  return recorded_open(real, at, path, flags, mode);
}
__attribute__((visibility("default"))) int open(const char* path, int flags, ...) {
  TRAINYARD_REAL(openat);
  TRAINYARD_MODE
  return recorded_open(real, AT_FDCWD, path, flags, mode);
}
__attribute__((visibility("default"))) int open64(const char* path, int flags, ...) {
  TRAINYARD_REAL(openat);
  TRAINYARD_MODE
  return recorded_open(real, AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

__attribute__((visibility("default"))) ssize_t write(int descriptor, const void* data, size_t size) {
  using namespace trainyard::chaos;
  TRAINYARD_REAL(write);
  const auto lock = recorder().lock();
  const int node = recorder().on() ? recorder().node_of(descriptor) : -1;
  const off_t offset = node < 0 ? 0 : ::lseek(descriptor, 0, SEEK_CUR);
  const ssize_t done = real(descriptor, data, size);
  if (done > 0)
    recorder().content(Call::What::write, node, offset,
                       std::string(static_cast<const char*>(data), static_cast<std::size_t>(done)));
  return done;
}
__attribute__((visibility("default"))) ssize_t pwrite(int descriptor, const void* data, size_t size,
                                                      off_t offset) {
  using namespace trainyard::chaos;
  TRAINYARD_REAL(pwrite);
  const auto lock = recorder().lock();
  const ssize_t done = real(descriptor, data, size, offset);
  if (done > 0 && recorder().on())
    recorder().content(Call::What::write, recorder().node_of(descriptor), offset,
                       std::string(static_cast<const char*>(data), static_cast<std::size_t>(done)));
  return done;
}
__attribute__((visibility("default"))) ssize_t writev(int descriptor, const struct iovec* parts, int count) {
  ssize_t all = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t done = write(descriptor, parts[i].iov_base, parts[i].iov_len);
    if (done < 0) return all > 0 ? all : done;
    all += done;
  }
  return all;
}
__attribute__((visibility("default"))) int ftruncate(int descriptor, off_t size) noexcept {
  using namespace trainyard::chaos;
  TRAINYARD_REAL(ftruncate);
  const auto lock = recorder().lock();
  const int done = real(descriptor, size);
  if (done == 0 && recorder().on()) recorder().content(Call::What::cut, recorder().node_of(descriptor), size);
  return done;
}
__attribute__((visibility("default"))) int truncate(const char* path, off_t size) noexcept {
  using namespace trainyard::chaos;
  TRAINYARD_REAL(truncate);
  const auto lock = recorder().lock();
  const int done = real(path, size);
  if (done == 0 && recorder().on())
    recorder().content(Call::What::cut, recorder().node_at(AT_FDCWD, path), size);
  return done;
}

__attribute__((visibility("default"))) int fsync(int descriptor) {
  using namespace trainyard::chaos;
  const auto lock = recorder().lock();
  if (recorder().on()) recorder().content(Call::What::sync, recorder().node_of(descriptor));
  return 0;
}
__attribute__((visibility("default"))) int fdatasync(int descriptor) {
  return fsync(descriptor);
}

__attribute__((visibility("default"))) int renameat2(int at, const char* from, int to_at, const char* to,
                                                     unsigned flags) noexcept {
  using namespace trainyard::chaos;
  TRAINYARD_REAL(renameat2);
  const auto lock = recorder().lock();
  const int done = real(at, from, to_at, to, flags);
  if (done != 0 || !recorder().on()) return done;
  const Recorder::Place old_place = recorder().place(at, from), new_place = recorder().place(to_at, to);
  if (old_place.node != new_place.node) std::abort();  // the model knows of no move between folders
  recorder().change((flags & RENAME_EXCHANGE) != 0 ? Call::What::exchange : Call::What::rename, old_place,
                    new_place.name);
  return done;
}
__attribute__((visibility("default"))) int rename(const char* from, const char* to) noexcept {
  return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

__attribute__((visibility("default"))) int mkdir(const char* path, mode_t mode) noexcept {
  using namespace trainyard::chaos;
  TRAINYARD_REAL(mkdir);
  const auto lock = recorder().lock();
  const int done = real(path, mode);
  if (done == 0 && recorder().on()) recorder().make(Call::What::make_folder, AT_FDCWD, path);
  return done;
}

__attribute__((visibility("default"))) int unlinkat(int at, const char* path, int flags) noexcept {
  using namespace trainyard::chaos;
  TRAINYARD_REAL(unlinkat);
  const auto lock = recorder().lock();
  const int done = real(at, path, flags);
  if (done == 0 && recorder().on()) recorder().change(Call::What::remove, recorder().place(at, path));
  return done;
}
__attribute__((visibility("default"))) int unlink(const char* path) noexcept {
  return unlinkat(AT_FDCWD, path, 0);
}
__attribute__((visibility("default"))) int rmdir(const char* path) noexcept {
  return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}
__attribute__((visibility("default"))) int remove(const char* path) noexcept {
  if (unlinkat(AT_FDCWD, path, 0) == 0) return 0;
  return errno == EISDIR || errno == EPERM ? unlinkat(AT_FDCWD, path, AT_REMOVEDIR) : -1;
}

}  // extern "C"
#undef TRAINYARD_REAL
#undef TRAINYARD_MODE
// NOLINTEND(readability-identifier-naming,cert-dcl50-cpp)
