// Writes and reads the text in a plugin's ELF section `.trainyard`.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/plugins/contract.hpp"
#include "core/plugins/plugin_file.hpp"

namespace trainyard::plugins {

inline constexpr std::string_view manifest_section = ".trainyard";
inline constexpr std::size_t max_manifest_bytes = 256 << 10;

/// Returns everything about the plugins of a file but its path, option setters and hook functions, as TOML;
/// the last line seals it with a digest of the code and one of the text itself.
std::string to_text(std::span<const PluginFile> plugins);
inline std::string to_text(const PluginFile& plugin) {
  return to_text({&plugin, 1});
}

/// Reads such a text; `path` stays empty. Throws PluginError, without the path, if the text was altered, was
/// sealed for a host of another contract, or holds anything unknown, missing or of the wrong type. A file is
/// taken whole or not at all: one build made its plugins, and one mends them.
std::vector<PluginFile> from_text(std::string_view text, const Contract& host = host_contract());

}  // namespace trainyard::plugins
