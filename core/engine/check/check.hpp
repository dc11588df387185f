// `trainyard plugins check`: every test of a plugin, each in a process of its own. Its library has an engine of
// its own, so that the one that trains comes without the tests; the program of the verb loads it (engine.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/check/check_options.hpp"
#include "core/plugins/registry.hpp"

namespace trainyard::check {

struct Checker {
  static constexpr std::uint64_t expected_magic = 0x316b63656863;  // "check1"
  std::uint64_t magic = expected_magic;

  /// Checks plugins, those without a name being all of a file, and prints what was found. Returns `done` if no
  /// test failed or crashed, else an exit code, after errors were printed. The process must not have used
  /// LibTorch yet.
  int (*check)(const std::vector<plugins::PluginFile>& plugins, const plugins::Registry& registry,
               const CheckOptions& options) = nullptr;
};

}  // namespace trainyard::check

extern "C" const trainyard::check::Checker* trainyard_checker();
