// run.log: every message of the host and of plugins, with its time and level.
#pragma once

#include <memory>
#include <string>

#include <trainyard/host.hpp>

namespace trainyard::report {

/// Used by any thread. Throws DataError if the file cannot be written.
class RunLog {
 public:
  explicit RunLog(const std::string& file);
  ~RunLog();
  void write(LogLevel level, const std::string& message);

 private:
  struct Logger;  // keeps spdlog's headers from units that include LibTorch's copy of fmt
  std::unique_ptr<Logger> logger_;
};

}  // namespace trainyard::report
