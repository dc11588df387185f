// Detectors that a screening has fitted, kept beside its scores until all are: one that was killed or stopped goes on
// with them, and one that other machines share in joins theirs.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "pool.hpp"

namespace screen {

/// A file for each detector, in a folder that is made with the first.
class Parts final : public FittedBefore {
 public:
  /// `key` tells the rows and all options that a fit depends on; files of another key are not used. `models`: also what
  /// the detectors learned, beside their scores. Fits of less than `least_seconds` are not kept.
  Parts(std::string folder, std::string key, bool models, double least_seconds)
      : folder_(std::move(folder)), key_(std::move(key)), models_(models), least_seconds_(least_seconds) {}

  const std::string& folder() const { return folder_; }
  bool models() const override { return models_; }
  double least_seconds() const override { return least_seconds_; }
  std::optional<Archive> find(std::size_t number) override;
  void add(std::size_t number, const Archive& archive) override;

  /// Removes the folder.
  void remove();
  /// Returns how many files there are for these detectors, whatever is in them.
  std::size_t count(std::size_t detectors) const;
  /// Returns what is to be told of files that are of no use; empty: nothing.
  std::string complaint() const { return complaint_; }
  /// Returns why a file could not be written; empty: all could.
  std::string unwritten() const;

 private:
  std::string path_of(std::size_t number) const;

  std::string folder_, key_;
  bool models_;
  double least_seconds_;
  std::string complaint_;
  mutable std::mutex mutex_;
  std::string unwritten_;
};

}  // namespace screen
