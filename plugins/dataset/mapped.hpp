// Files of datasets in memory, without a copy.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include <trainyard/error.hpp>

#include "lib/descriptor.hpp"
#include "lib/mapping.hpp"

namespace datasets {

/// Maps a whole file. Throws DataError.
inline std::unique_ptr<const trainyard::lib::Mapping> map_file(const std::string& path) {
  const auto fail = [&](const std::string& why) { throw trainyard::DataError(path + ": " + why); };
  const trainyard::lib::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) fail(std::strerror(errno));
  struct stat status {};
  ::fstat(file.get(), &status);
  if (!S_ISREG(status.st_mode)) fail("it is no regular file, which alone can be mapped");
  if (status.st_size == 0) fail("the file is empty");
  auto mapping =
      std::make_unique<const trainyard::lib::Mapping>(file.get(), static_cast<std::size_t>(status.st_size));
  if (!mapping->good()) fail(std::strerror(errno));
  return mapping;
}

}  // namespace datasets
