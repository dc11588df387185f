// What trials cost, for searches that go by it.
#pragma once

#include <cstdint>
#include <string_view>

#include <trainyard/study.hpp>

namespace studies {

enum class Cost : std::uint8_t { wall, cpu, steps };

inline constexpr const char* cost_help =
    "what trials cost: seconds, seconds of processors, or steps, of which two studies have the same; "
    "seconds of a trial that was interrupted are those of its last process";

inline double cost_of(const trainyard::TrialOutcome& outcome, Cost cost) {
  switch (cost) {
    case Cost::wall: return outcome.seconds;
    case Cost::cpu: return outcome.cpu_seconds;
    case Cost::steps: return static_cast<double>(outcome.steps);
  }
  return 0.0;
}

}  // namespace studies

template <>
struct trainyard::Words<studies::Cost> {
  static constexpr std::string_view words[] = {"wall", "cpu", "steps"};
};
