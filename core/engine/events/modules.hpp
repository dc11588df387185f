// Finds the shared objects in which the addresses of a stack lie.
#pragma once

#include <cstdint>

namespace trainyard::report {

struct Module {
  char name[96] = {};  ///< name of its file, without folders; empty: unknown
  std::uintptr_t offset = 0;
};

/// Uses system calls only, as it runs in signal handlers: dladdr takes a lock.
void find_modules(void* const* stack, int frames, Module* modules);

}  // namespace trainyard::report
