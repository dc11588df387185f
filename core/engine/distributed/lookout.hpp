// What whoever waits for other ranks asks of the one who watches over them.
#pragma once

#include <chrono>
#include <string>

#include <trainyard/ranks.hpp>

namespace trainyard::distributed {

class Lookout {
 public:
  virtual ~Lookout() = default;

  /// Called again and again while one waits. Tells of a rank that has become silent; throws DistributedError
  /// where to wait on is of no use.
  virtual void check_others() = 0;
  /// From one such call to the next.
  virtual std::chrono::milliseconds pause() const = 0;
  /// What the host is to tell of the failure of a collective: the rank that is to blame, and what it said.
  virtual DistributedError explain(const std::string& what) = 0;
};

}  // namespace trainyard::distributed
