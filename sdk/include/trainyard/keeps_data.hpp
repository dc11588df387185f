// A dataset that can keep what it has read, as it lies in memory, in a file that later runs map. It is found
// by its type: dynamic_cast<KeepsData*>(dataset).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("keeps_data.hpp");

namespace trainyard {

struct KeptFacts {
  std::string file;   ///< path of the file; several splits may share one
  bool made = false;  ///< the file was made now; else it was there
};

/// Told how many bytes of the data's own files are read, of how many; both are equal once the file is whole.
using KeptProgress = std::function<void(std::int64_t done, std::int64_t total)>;

class KeepsData {
 public:
  virtual ~KeepsData() = default;

  /// Takes the place of Dataset::open(): keeps the data of a split in its file; a file that is there is read,
  /// and so checked. Throws ConfigError where the options name no folder for it, else as open().
  virtual KeptFacts keep(const std::string& split, const KeptProgress& progress) = 0;
};

/// A plugin with options that name folders for copies of what it reads. Each rank may have others, so the
/// host does not compare what lies there. It is found by dynamic_cast<const KeepsFolders*>(&plugin).
class KeepsFolders {
 public:
  virtual ~KeepsFolders() = default;

  /// Returns the names of these options.
  virtual std::vector<std::string> kept_folders() const = 0;
};

}  // namespace trainyard
