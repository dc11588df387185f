// P13: the symbol is there, what it gives is something else.
#include <trainyard/pack.hpp>

#ifdef COUNT  // a pack that does not have what it says
#ifndef SIZE
#define SIZE sizeof(trainyard::PackEntry)
#endif
const trainyard::PluginEntry plugins[2] = {{.magic = 7}, {}};
struct Entry {
  trainyard::PackEntry pack = {.size = SIZE, .count = COUNT, .plugins = plugins};
};
#elif defined(SMALL)
struct Entry {
  std::uint64_t magic = trainyard::PluginEntry::expected_magic;
  std::size_t size = sizeof(Entry);
};
#else
struct Entry {
  double weights[32] = {1.0};
};
#endif

extern "C" const void* trainyard_plugin() {
  static const Entry entry;
  return &entry;
}
