// What tells files of data from others. Torch-free.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <trainyard/manifest.hpp>

namespace trainyard::report {

/// Of each file, and no folder, that options of a plugin name: the name of the option, and size and SHA-256 as text.
/// The SHA-256 is over all of a file of up to 64 MiB; of a larger one, which would take long to read, it is over 64
/// pieces of 1 MiB that are spread evenly from its first byte to its last. Throws DataError.
std::vector<std::pair<std::string, std::string>> file_identities(const ManifestData& manifest,
                                                                 const Table& options);

}  // namespace trainyard::report
