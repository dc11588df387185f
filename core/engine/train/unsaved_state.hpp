// --strict-state: plugins that keep state which no checkpoint has. It sees what lies in the object itself and in
// static variables; of what lies behind pointers the test of a resume knows (`plugins check`).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/engine/train/active_plugin.hpp"

namespace trainyard::train {

class UnsavedState {
 public:
  /// `tell` gets one line, once a plugin, for each of the two.
  explicit UnsavedState(std::function<void(const std::string&)> tell) : tell_(std::move(tell)) {}

  /// Between steps. The first steps do not count: much is made ready in them once.
  void look(std::deque<ActivePlugin>& plugins);

 private:
  struct Seen {
    std::vector<char> object, statics;
    int looks = 0;
    bool object_told = false, statics_told = false;
  };
  void look(ActivePlugin& plugin, Seen& seen);

  std::function<void(const std::string&)> tell_;
  std::map<const void*, Seen> seen_;  ///< by object
};

}  // namespace trainyard::train
