// What tools/mutate puts in front of each file that it breaks: all mutations are compiled in at
// once, and the environment says which of them is on. Where the compiler computes, none is.
#pragma once
#include <cstdio>
#include <cstdlib>

// A plugin may export nothing that all plugins of a process would share.
#pragma GCC visibility push(hidden)
namespace mutate {

/// Leaves a file of that number in $MUTATE_REACHED: the test that runs comes by here.
inline void reached(int number) {
  static const char* const folder = std::getenv("MUTATE_REACHED");
  static unsigned char seen[4096];
  if (folder == nullptr || seen[number] != 0) return;
  seen[number] = 1;
  char path[4096];
  std::snprintf(path, sizeof path, "%s/%d", folder, number);
  if (std::FILE* const file = std::fopen(path, "we")) std::fclose(file);
}

inline bool chosen(int number) {
  static const char* const text = std::getenv("MUTATE");
  static const int active = text == nullptr ? -1 : std::atoi(text);
  reached(number);
  return number == active;
}

constexpr bool on(int number) {
  if (__builtin_is_constant_evaluated()) return false;
  return chosen(number);
}

}  // namespace mutate
#pragma GCC visibility pop
