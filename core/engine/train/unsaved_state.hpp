// --strict-state: finds plugins with state that no checkpoint has. It sees the object itself and static
// variables; the test of a resume (`plugins check`) covers what lies behind pointers.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "core/engine/train/active_plugin.hpp"

namespace trainyard::train {

class UnsavedState {
 public:
  /// `tell` gets one line for each of the two kinds, once per plugin.
  explicit UnsavedState(std::function<void(const std::string&)> warn) : warn_(std::move(warn)) {}

  /// Called between steps. The first steps do not count: much is set up once in them.
  void inspect(std::list<ActivePlugin>& plugins);

 private:
  struct Seen {
    std::vector<char> object, statics;
    int looks = 0;
    bool object_told = false, statics_told = false;
  };
  void inspect(ActivePlugin& plugin, Seen& seen);

  std::function<void(const std::string&)> warn_;
  std::map<const void*, Seen> seen_;  ///< by object
};

}  // namespace trainyard::train
