// A folder for what runs keep of this machine, in place of the user's, for as long as a test lasts.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace trainyard::test {

class CacheHome {
 public:
  explicit CacheHome(const std::string& folder) {
    if (const char* const value = std::getenv("XDG_CACHE_HOME")) before_ = value;
    ::setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  }
  ~CacheHome() { before_ ? ::setenv("XDG_CACHE_HOME", before_->c_str(), 1) : ::unsetenv("XDG_CACHE_HOME"); }
  CacheHome(const CacheHome&) = delete;
  CacheHome& operator=(const CacheHome&) = delete;

 private:
  std::optional<std::string> before_;
};

}  // namespace trainyard::test
