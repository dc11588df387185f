#include "core/engine/events/modules.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

namespace trainyard::report {

void find_modules(void* const* stack, int frames, Module* modules) {
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return;
  // A line: "begin-end rights offset device inode   path". Longer ones are cut; their numbers come first.
  char line[512], buffer[4096];
  std::size_t length = 0;
  const auto take = [&] {
    line[length] = '\0';
    const char* at = line;
    const auto hex = [&] {
      std::uintptr_t value = 0;
      for (;; ++at) {
        const int digit = *at >= '0' && *at <= '9'   ? *at - '0'
                          : *at >= 'a' && *at <= 'f' ? *at - 'a' + 10
                                                     : -1;
        if (digit < 0) return value;
        value = value << 4 | static_cast<std::uintptr_t>(digit);
      }
    };
    const std::uintptr_t begin = hex();
    if (*at++ != '-') return;
    const std::uintptr_t end = hex();
    while (*at == ' ') ++at;
    while (*at != ' ' && *at != '\0') ++at;  // rights
    while (*at == ' ') ++at;
    const std::uintptr_t offset = hex();
    const char* path = std::strchr(at, '/');
    if (path == nullptr) return;
    path = std::strrchr(path, '/') + 1;
    for (int i = 0; i < frames; ++i) {
      const auto address = reinterpret_cast<std::uintptr_t>(stack[i]);
      if (address < begin || address >= end) continue;
      std::strncpy(modules[i].name, path, sizeof modules[i].name - 1);
      modules[i].offset = address - begin + offset;
    }
  };
  for (ssize_t got; (got = read(maps, buffer, sizeof buffer)) > 0;)
    for (ssize_t i = 0; i < got; ++i) {
      if (buffer[i] == '\n') {
        take();
        length = 0;
      } else if (length + 1 < sizeof line) {
        line[length++] = buffer[i];
      }
    }
  close(maps);
}

}  // namespace trainyard::report
