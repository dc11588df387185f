// Kernels of the house that take images one by one, on the threads that there are.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>

#include "compiler.hpp"
#include "loops.hpp"

namespace compiled {

inline Layout floats_of(std::int64_t count) {
  return plain({count});
}

/// Runs part(begin, end, scratch) over the images; each thread has `scratch_floats` of its own.
template <class Part>
void over_images(std::int64_t images, const dnnl::memory& scratch, std::int64_t scratch_floats,
                 const Part& part) {
  at::parallel_for(0, images, 1, [&](std::int64_t begin, std::int64_t end) {
    part(begin, end, floats(scratch) + at::get_thread_num() * scratch_floats);
  });
}

/// The sum over images of so many floats: each thread has one of its own, and they are added in order.
class SumOverImages {
 public:
  SumOverImages(Compiler& compiler, std::int64_t images, std::int64_t count, std::int64_t scratch_floats)
      : images_(images),
        count_(count),
        scratch_floats_(scratch_floats),
        threads_(std::min<std::int64_t>(at::get_num_threads(), images)),
        sums_(compiler.scratch(floats_of(count * threads_))),
        scratch_(compiler.scratch(floats_of(scratch_floats * threads_))) {}

  /// Calls part(begin, end, sums, scratch), which adds to the sums, and gives them.
  template <class Part>
  float* run(const Part& part) const {
    at::parallel_for(0, threads_, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t) {
        float* const sums = floats(sums_) + t * count_;
        std::memset(sums, 0, static_cast<std::size_t>(count_) * sizeof(float));
        part(t * images_ / threads_, (t + 1) * images_ / threads_, sums,
             floats(scratch_) + t * scratch_floats_);
      }
    });
    for (std::int64_t t = 1; t < threads_; ++t) add_into(floats(sums_), floats(sums_) + t * count_, count_);
    return floats(sums_);
  }

 private:
  std::int64_t images_, count_, scratch_floats_, threads_;
  dnnl::memory sums_, scratch_;
};

}  // namespace compiled
