// Reads the SDK's headers as text, for the contract to which a plugin is locked.
#pragma once

#include <filesystem>
#include <string>

#include "core/plugins/contract.hpp"

namespace trainyard::seal {

struct Headers {
  plugins::Contract contract;
  plugins::Contract unnamed;  ///< headers of it that do not declare TRAINYARD_CONTRACT with their name
};

/// Reads the headers in the folder that holds trainyard/; one of helpers/, formats/ or ad/ is in the contract
/// only if it says so, as plugins compile its code into their own. Throws PluginError if there are none.
Headers read_headers(const std::filesystem::path& include);

/// Returns a text without comments, and blanks only within literals and between two words.
std::string without_comments(const std::string& text);

}  // namespace trainyard::seal
