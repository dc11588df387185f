// Replaces a file in one step: a reader finds the old content or all of the new, also after a power failure.
#pragma once

#include <optional>
#include <string>

namespace trainyard::lib {

struct FileFailure {
  std::string what;  ///< a whole message: "cannot rename 'a.tmp' to 'a': Is a directory"
  int reason;        ///< the errno that it ends with
};

/// Waits until the names in a folder are on the disk. File systems that cannot sync a folder count as done.
[[nodiscard]] std::optional<FileFailure> sync_folder(const std::string& folder);

/// A file that is written beside the one that it replaces.
class NewFile {
 public:
  /// Makes no file yet. The suffix makes the temporary name; writers of the same path at the same time need one each.
  explicit NewFile(std::string path, const std::string& suffix = ".tmp");
  /// Removes the temporary file, unless it is in place.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// Returns the path that the content is to be written to.
  const std::string& temporary() const { return temporary_; }

  /// Syncs the temporary file, which its writer has closed or flushed, renames it to the path and syncs the folder.
  [[nodiscard]] std::optional<FileFailure> put_in_place();

 private:
  std::string path_, temporary_;
  bool in_place_ = false;
};

}  // namespace trainyard::lib
