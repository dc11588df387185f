// A dataset that can keep what it reads as it lies in memory, in a file that later runs map. Found by what it
// is: dynamic_cast<KeepsData*>(dataset).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("keeps_data.hpp");

namespace trainyard {

struct KeptFacts {
  std::string file;   ///< several splits may share one
  bool made = false;  ///< now; else it was there
};

/// Bytes of the data's own files that are read, and of all there are; the same twice once the file is whole.
using KeptProgress = std::function<void(std::int64_t done, std::int64_t total)>;

class KeepsData {
 public:
  virtual ~KeepsData() = default;

  /// In the place of Dataset::open(): has the data of a split in its file, which is read, and so checked, where
  /// it is there. Throws ConfigError where the options name no folder to keep it in, else as open().
  virtual KeptFacts keep(const std::string& split, const KeptProgress& progress) = 0;
};

/// A plugin with options that name folders into which it writes copies of what it reads. Each rank may have others, so
/// that the host does not compare what lies there. Found by what it is: dynamic_cast<const KeepsFolders*>(&plugin).
class KeepsFolders {
 public:
  virtual ~KeepsFolders() = default;

  /// Names of these options.
  virtual std::vector<std::string> kept_folders() const = 0;
};

}  // namespace trainyard
