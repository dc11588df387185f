// The shared objects that the addresses of a stack lie in.
#pragma once

#include <cstdint>

namespace trainyard::report {

struct Module {
  char name[96] = {};  ///< of its file, without folders; empty: not known
  std::uintptr_t offset = 0;
};

/// With system calls only, as a signal handler may: dladdr takes a lock.
void find_modules(void* const* stack, int frames, Module* modules);

}  // namespace trainyard::report
