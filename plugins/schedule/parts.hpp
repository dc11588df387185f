// A schedule that is made of schedules.
#pragma once

#include <memory>
#include <vector>

#include <trainyard/host.hpp>
#include <trainyard/schedule.hpp>

namespace schedules {

using namespace trainyard;

class ScheduleOfParts : public Schedule {
 public:
  struct Options {
    PluginList<Schedule> parts;
  };

 protected:
  explicit ScheduleOfParts(Options options) : options_(std::move(options)) {}

  /// Made at the first call.
  const std::vector<std::unique_ptr<Schedule>>& parts() {
    if (options_.parts.tables.empty())
      throw ConfigError("schedule.parts is empty; give at least one: parts = [{ type = \"linear\" }]");
    if (parts_.empty()) parts_ = make_plugins(host(), options_.parts);
    return parts_;
  }

 private:
  Options options_;
  std::vector<std::unique_ptr<Schedule>> parts_;
};

}  // namespace schedules
