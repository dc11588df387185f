#include "core/engine/train/unsaved_state.hpp"

#include <link.h>
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

namespace trainyard::train {
namespace {

constexpr int first_steps = 2;

/// Returns the writable memory of the module that holds `code`: its static variables.
std::vector<char> statics_of(const void* code) {
  struct Search {
    std::uintptr_t address;
    std::vector<char> bytes;
  } search{reinterpret_cast<std::uintptr_t>(code), {}};
  const auto visit = [](dl_phdr_info* module, std::size_t, void* target) {
    Search& found = *static_cast<Search*>(target);
    const auto contains = [&](const ElfW(Phdr) & part) {
      return part.p_type == PT_LOAD && found.address - (module->dlpi_addr + part.p_vaddr) < part.p_memsz;
    };
    const std::span parts(module->dlpi_phdr, module->dlpi_phnum);
    if (std::ranges::none_of(parts, contains)) return 0;
    std::uintptr_t fixed = 0;  // end of what is read-only once the module is bound
    for (const ElfW(Phdr) & part : parts)
      if (part.p_type == PT_GNU_RELRO) fixed = module->dlpi_addr + part.p_vaddr + part.p_memsz;
    for (const ElfW(Phdr) & part : parts) {
      if (part.p_type != PT_LOAD || (part.p_flags & PF_W) == 0) continue;
      const std::uintptr_t begin = module->dlpi_addr + part.p_vaddr, end = begin + part.p_memsz;
      const std::uintptr_t from = std::clamp(fixed, begin, end);
      found.bytes.insert(found.bytes.end(), reinterpret_cast<const char*>(from),
                         reinterpret_cast<const char*>(end));
    }
    return 1;
  };
  dl_iterate_phdr(visit, &search);
  return std::move(search.bytes);
}

bool saves(ActivePlugin& plugin) {
  const State state = plugin.state();
  return !state.scalars.empty() || !state.tensors.empty();
}

}  // namespace

void UnsavedState::inspect(std::list<ActivePlugin>& plugins) {
  std::map<const void*, Seen> now;
  for (ActivePlugin& plugin : plugins) {
    if (!plugin.has_state() || plugin.subscriber().disabled) continue;
    Seen& seen = now[plugin.subscriber().self] = std::move(seen_[plugin.subscriber().self]);
    inspect(plugin, seen);
  }
  seen_ = std::move(now);
}

void UnsavedState::inspect(ActivePlugin& plugin, Seen& seen) {
  void* const self = plugin.subscriber().self;
  const auto* const begin = static_cast<const char*>(self);
  std::vector<char> object(begin, begin + malloc_usable_size(self));
  std::vector<char> statics = statics_of(*static_cast<void* const*>(self));  // found by its virtual table
  const std::string who = "[" + plugin.slot().slot + "] " + plugin.slot().type;
  if (++seen.looks > first_steps) {
    if (statics != seen.statics && !std::exchange(seen.statics_told, true))
      warn_(who +
            ": its static variables change from step to step: all of its objects in this process share them, "
            "and no checkpoint has them; make them members of the class, with `save` and `load`");
    if (object != seen.object && !saves(plugin) && !std::exchange(seen.object_told, true))
      warn_(who +
            ": its members change from step to step, and it saves nothing: a run that is resumed goes on "
            "without what they hold; write `save` and `load`, but for what is of no use behind the step");
  }
  seen.object = std::move(object);
  seen.statics = std::move(statics);
}

}  // namespace trainyard::train
