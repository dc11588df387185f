// The SDK's headers as text: what of them a plugin is locked to.
#pragma once

#include <filesystem>
#include <string>

#include "core/plugins/contract.hpp"

namespace trainyard::seal {

struct Headers {
  plugins::Contract contract;
  plugins::Contract unnamed;  ///< those of them that do not say TRAINYARD_CONTRACT with their name
};

/// Of the folder that holds trainyard/. A header of helpers/, formats/ or ad/ is of the contract where it names itself:
/// what does not cross between plugin and host, a plugin takes into its own code. Throws PluginError where there are none.
Headers read_headers(const std::filesystem::path& include);

/// What the compiler sees of a text, but for blanks: they stay within literals and between two words.
std::string without_comments(const std::string& text);

}  // namespace trainyard::seal
