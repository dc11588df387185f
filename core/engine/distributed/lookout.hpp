// The interface by which code that waits for other ranks asks whether they are alive.
#pragma once

#include <chrono>
#include <string>

#include <trainyard/ranks.hpp>

namespace trainyard::distributed {

class Lookout {
 public:
  virtual ~Lookout() = default;

  /// Called repeatedly while the caller waits. Reports a rank that has become silent; throws DistributedError
  /// if waiting is of no more use.
  virtual void check_others() = 0;
  /// Returns the time from one such call to the next.
  virtual std::chrono::milliseconds pause() const = 0;
  /// Returns the error to report when a collective failed: the rank to blame, and what it said.
  virtual DistributedError explain(const std::string& what) = 0;

  /// Calls a function of c10d, and explains what it throws.
  template <class Call>
  auto explained(Call&& call) {
    try {
      return call();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw explain(error.what());
    }
  }
};

}  // namespace trainyard::distributed
