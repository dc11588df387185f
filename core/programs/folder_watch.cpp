#include "core/programs/folder_watch.hpp"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <trainyard/error.hpp>

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds moment{150};
constexpr std::uint32_t watched_events =
    IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_ONLYDIR;

/// Returns whether a name is that of a temporary file of an editor.
bool is_passing(const std::string& name) {
  return name.starts_with('.') || name.ends_with('~') || name.ends_with(".swp") || name == "4913";
}

bool comes(int file, std::chrono::milliseconds limit) {
  pollfd polled{file, POLLIN, 0};
  return ::poll(&polled, 1, static_cast<int>(limit.count())) > 0;
}

}  // namespace

FolderWatch::FolderWatch(const std::string& folder, std::vector<std::string> without)
    : without_(std::move(without)), notices_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  if (!notices_) throw DataError(std::string("cannot watch files: ") + std::strerror(errno));
  add(folder);
}

void FolderWatch::add(const std::string& folder) {
  const int watch = ::inotify_add_watch(notices_.get(), folder.c_str(), watched_events);
  if (watch < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return;  // the folder was removed meanwhile
    throw DataError("cannot watch " + folder + ": " + std::strerror(errno));
  }
  folders_[watch] = folder;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory(error) && !entry.is_symlink(error) && !is_passing(name) &&
        std::ranges::find(without_, name) == without_.end())
      add(entry.path().string());
  }
}

bool FolderWatch::take() {
  alignas(inotify_event) char buffer[16 * 1024];
  bool found = false;
  for (ssize_t count = 0; (count = ::read(notices_.get(), buffer, sizeof buffer)) > 0;)
    for (ssize_t at = 0; at < count;) {
      inotify_event event{};
      std::memcpy(&event, buffer + at, sizeof event);
      const std::string name = event.len > 0 ? buffer + at + sizeof event : "";
      at += static_cast<ssize_t>(sizeof event + event.len);
      if ((event.mask & IN_Q_OVERFLOW) != 0) found = true;
      const auto folder = folders_.find(event.wd);
      if (folder == folders_.end() || name.empty() || is_passing(name) ||
          std::ranges::find(without_, name) != without_.end())
        continue;
      if ((event.mask & IN_ISDIR) != 0 && (event.mask & (IN_CREATE | IN_MOVED_TO)) != 0)
        add(folder->second + "/" + name);
      // A new file is ignored here, as a notice of its first write follows.
      if ((event.mask & IN_CREATE) == 0 || (event.mask & IN_ISDIR) != 0) found = true;
    }
  return found;
}

bool FolderWatch::changed(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0 || !comes(notices_.get(), left)) return false;
    if (!take()) continue;
    while (comes(notices_.get(), moment)) take();
    return true;
  }
}

}  // namespace trainyard::cli
