// The memory of the passes of a training, by their points (profile.hpp): bytes above what the wave had at their start.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace wavelet {

class Curve {
 public:
  /// A pass had at most that many from the point to the next one.
  void add(std::size_t point, std::int64_t bytes) {
    if (most_.size() <= point) most_.resize(point + 1, 0);
    most_[point] = std::max(most_[point], bytes);
  }

  /// The most seen from the point to the next one, and from the point to the end; 0 where nothing is known.
  std::int64_t next(std::size_t point) const { return point < most_.size() ? most_[point] : 0; }
  std::int64_t ahead(std::size_t point) const {
    return point < most_.size()
               ? *std::max_element(most_.begin() + static_cast<std::ptrdiff_t>(point), most_.end())
               : 0;
  }
  std::int64_t peak() const { return ahead(0); }

 private:
  std::vector<std::int64_t> most_;
};

}  // namespace wavelet
