// The ways in which a sample plugin goes wrong.
#pragma once

#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <trainyard/error.hpp>

namespace faulty {

inline const std::vector<std::string> ways = {"nothing", "segv", "bus",  "fpe",   "ill",       "abort",
                                              "stack",   "hang", "deaf", "throw", "terminate", "doze"};

/// Recursion that the compiler must not turn into a loop.
__attribute__((noinline)) inline int deeper(int depth) {
  volatile char room[1024];
  room[0] = static_cast<char>(depth);
  return depth < 0 ? 0 : deeper(depth + 1) + room[0];
}

/// Of several ranks; -1: on all of them.
inline bool on_rank(std::int64_t rank) {
  const char* own = std::getenv("RANK");
  return rank < 0 || (own != nullptr && std::to_string(rank) == own);
}

inline void go_wrong(const std::string& way) {
  volatile int zero = 0, seven = 7;
  if (way == "segv") *reinterpret_cast<volatile int*>(static_cast<std::intptr_t>(zero)) = 1;
  if (way == "bus") raise(SIGBUS);
  if (way == "fpe") zero = seven / zero;
  if (way == "ill") __builtin_trap();
  if (way == "abort") std::abort();
  if (way == "stack") zero = deeper(0);
  if (way == "deaf") {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
  }
  if (way == "hang" || way == "deaf")
    for (;;) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (way == "doze") {  // seconds
    const char* const late = std::getenv("TRAINYARD_DOZE");
    std::this_thread::sleep_for(std::chrono::duration<double>(late != nullptr ? std::atof(late) : 0.3));
  }
  if (way == "throw") throw std::runtime_error("thrown on purpose");
  if (way == "terminate") std::thread([] { throw std::runtime_error("nobody catches this"); }).join();
}

}  // namespace faulty
