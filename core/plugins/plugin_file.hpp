// The facts that a sealed file states about a plugin in it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include <trainyard/manifest_data.hpp>

namespace trainyard::plugins {

/// Facts about the build of a sealed file, compared with the host's: "sdk", "libtorch", "compiler", "library"
/// and "isa" field by field (fingerprint.hpp), "headers" header by header (contract.hpp).
using BuildFacts = std::map<std::string, std::string>;

/// A plugin and its file; those of a pack have the same path, build and digest.
struct PluginFile {
  std::string path;
  ManifestData manifest;  ///< without setters and hook functions
  BuildFacts build;
  std::string digest;     ///< SHA-256 over the loadable segments, as sealed
  std::size_t place = 0;  ///< among the plugins of its file

  bool is(std::string_view kind, std::string_view name) const {
    return manifest.kind == kind && manifest.name == name;
  }
};

}  // namespace trainyard::plugins
