#include "lib/new_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "lib/descriptor.hpp"

namespace trainyard::lib {
namespace {

FileFailure failure(const std::string& what) {
  const int reason = errno;
  return {what + ": " + std::strerror(reason), reason};
}

std::optional<FileFailure> sync(const std::string& path, int flags) {
  const Descriptor file(::open(path.c_str(), flags | O_RDONLY | O_CLOEXEC));
  if (!file) return failure("cannot open '" + path + "'");
  // EINVAL and EROFS say that there is nothing to sync.
  if (::fsync(file.get()) != 0 && errno != EINVAL && errno != EROFS)
    return failure("cannot sync '" + path + "'");
  return std::nullopt;
}

}  // namespace

std::optional<FileFailure> sync_folder(const std::string& folder) {
  return sync(folder.empty() ? "." : folder, O_DIRECTORY);
}

NewFile::NewFile(std::string path, const std::string& suffix)
    : path_(std::move(path)), temporary_(path_ + suffix) {}

NewFile::~NewFile() {
  if (!in_place_) ::unlink(temporary_.c_str());
}

std::optional<FileFailure> NewFile::put_in_place() {
  if (auto failed = sync(temporary_, 0)) return failed;
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0)
    return failure("cannot rename '" + temporary_ + "' to '" + path_ + "'");
  in_place_ = true;
  return sync_folder(path_.substr(0, path_.rfind('/') + 1));
}

}  // namespace trainyard::lib
