// P13: the symbol is there, what it gives is something else.
#include <trainyard/plugin.hpp>

#ifdef SMALL
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
