// A table of whole steps: by how much one of the contenders is faster than each.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "tools/bench/contest.hpp"

namespace trainyard::bench {

/// `steps`: of a chunk. `who` is contender number `faster`, as the head of the table calls it.
inline void print_faster(const std::string& title, const std::string& who, std::size_t faster, int steps,
                         const std::vector<Contender>& contenders, const std::vector<Times>& times) {
  std::printf("%s\n  %-36s %12s %12s   %s is faster by\n", title.c_str(), "", "min, ms", "p20, ms",
              who.c_str());
  const auto wall = [&](std::size_t i, double share) { return percentile(times[i].wall, share); };
  for (std::size_t i = 0; i < contenders.size(); ++i)
    std::printf("  %-36s %12.4f %12.4f   %.2fx, minima %.2fx\n", contenders[i].name.c_str(),
                1e3 * wall(i, 0.0) / steps, 1e3 * wall(i, 0.2) / steps, wall(i, 0.2) / wall(faster, 0.2),
                wall(i, 0.0) / wall(faster, 0.0));
  std::fflush(stdout);
}

}  // namespace trainyard::bench
