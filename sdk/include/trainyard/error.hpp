// Errors that reach a user. Throw one of these from a plugin with a message that says what was found,
// what was expected and how to mend it; the host adds plugin, event and step, ends the run in order and
// exits with the code of the class. Any other exception that leaves a plugin counts as a PluginError.
#pragma once

#include <stdexcept>
#include <string>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("error.hpp");

namespace trainyard {

/// The process exit code of a failed or ended run.
enum class ExitCode : int {
  done = 0,
  internal = 1,
  config = 2,
  plugin = 3,
  data = 4,
  numeric = 5,
  distributed = 6,
  resumable = 75,
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// The run file asks for something that cannot be had (found only once shapes or sizes are known).
struct ConfigError : Error {
  explicit ConfigError(const std::string& message) : Error(ExitCode::config, message) {}
};
/// A plugin is broken, foreign, or broke its contract.
struct PluginError : Error {
  explicit PluginError(const std::string& message) : Error(ExitCode::plugin, message) {}
};
/// A data file is missing, truncated or holds a bad record: name the file and the record.
struct DataError : Error {
  explicit DataError(const std::string& message) : Error(ExitCode::data, message) {}
};
/// A loss or a weight stopped being finite.
struct NumericError : Error {
  explicit NumericError(const std::string& message) : Error(ExitCode::numeric, message) {}
};

}  // namespace trainyard
