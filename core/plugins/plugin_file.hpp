// The facts that a sealed plugin file states about itself.
#pragma once

#include <map>
#include <string>

#include <trainyard/manifest_data.hpp>

namespace trainyard::plugins {

/// Facts about the build of a sealed file, compared with the host's: "sdk", "libtorch", "compiler", "library"
/// and "isa" field by field (fingerprint.hpp), "headers" header by header (contract.hpp).
using BuildFacts = std::map<std::string, std::string>;

struct PluginFile {
  std::string path;
  ManifestData manifest;  ///< without setters and hook functions
  BuildFacts build;
  std::string digest;  ///< SHA-256 over the loadable segments, as sealed
};

}  // namespace trainyard::plugins
