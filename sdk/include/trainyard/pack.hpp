// Several plugins in one shared object, a pack: its classes are written as for an object each, and one source
// lists them in place of TRAINYARD_PLUGIN.
//
//   #include <trainyard/pack.hpp>
//
//   TRAINYARD_PACK(Lion, Focal, Mixup)
//
// A host finds each by kind and name, and loads the object once for all that a run uses. They share its
// statics, its digest and the headers that it was built with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <trainyard/contract.hpp>
#include <trainyard/plugin.hpp>

TRAINYARD_CONTRACT("pack.hpp");

namespace trainyard {

/// Stands where an object with one plugin exports its PluginEntry, and lists several. Its layout is frozen.
struct PackEntry {
  static constexpr std::uint64_t expected_magic = 0x316b6361707274;  // "trpack1"
  static constexpr std::size_t most = 256;                           ///< plugins in one object

  std::uint64_t magic = expected_magic;
  std::size_t size = sizeof(PackEntry);
  std::size_t count = 0;
  const PluginEntry* plugins = nullptr;  ///< `count` of them
};

/// Returns the pack that an object exports; null where it exports a single plugin, or nothing.
inline const PackEntry* pack_of(const void* exported) {
  std::uint64_t magic = 0;
  if (exported != nullptr) std::memcpy(&magic, exported, sizeof magic);
  return magic == PackEntry::expected_magic ? static_cast<const PackEntry*>(exported) : nullptr;
}

namespace detail {

template <class... Classes>
const PackEntry* pack() {
  static_assert(sizeof...(Classes) > 0 && sizeof...(Classes) <= PackEntry::most,
                "the pack is empty, or has more than 256 plugins: TRAINYARD_PACK(First, Second)");
  static constexpr PluginEntry plugins[] = {
      {.fingerprint = {}, .describe = &describe<Classes>, .create = &create<Classes>}...};
  static constexpr PackEntry entry = {.count = sizeof...(Classes), .plugins = plugins};
  return &entry;
}

}  // namespace detail
}  // namespace trainyard

/// Exports classes as the plugins of this shared object. Use it once per object, at namespace scope.
#define TRAINYARD_PACK(...)                                                                         \
  extern "C" __attribute__((visibility("default"))) const trainyard::PackEntry* TRAINYARD_ENTRY() { \
    return trainyard::detail::pack<__VA_ARGS__>();                                                  \
  }
