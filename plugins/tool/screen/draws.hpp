// Random numbers one after the other, from a counter-based stream.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include <trainyard/random.hpp>

namespace screen {

class Draws {
 public:
  explicit Draws(const trainyard::RandomStream& stream) : stream_(stream) {}

  double uniform() { return stream_.uniform(next_++); }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(stream_.below(next_++, bound)); }
  double normal() {  // Box-Muller, one of the two
    const double radius = std::sqrt(-2.0 * std::log1p(-uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  trainyard::RandomStream stream_;
  std::uint64_t next_ = 0;
};

}  // namespace screen
