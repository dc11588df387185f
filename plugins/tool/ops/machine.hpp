// What a time depends on beside the operator: threads of all pools, pages that the allocator keeps, the processor and the
// libraries.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "timer.hpp"

namespace ops {

/// What the times of a database were taken on; those of another machine are no times of this one.
struct Machine {
  std::string id;  ///< a digest of the facts
  std::vector<std::pair<std::string, std::string>> facts;
};
Machine this_machine();

/// Returns the clocks of this process.
Clock process_clock();

/// Sets the threads of LibTorch, and so of OpenMP, which oneDNN computes with, and of MKL, for as long as it lives.
class Threads {
 public:
  explicit Threads(std::int64_t count);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

/// Tells glibc's allocator to keep freed pages, or to give large ones back at once, as it does by default: then each
/// large tensor is made of new pages, which the kernel fills with zeros. For the rest of the process, unless set anew.
void keep_pages(bool keep);

/// Fills the caches with other data than any operator has.
void flush_caches();

}  // namespace ops
