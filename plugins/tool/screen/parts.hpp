// Detectors that a screening has fitted, kept beside its scores until all are: one that was killed or stopped goes on
// with them.
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
  /// the detectors learned, beside their scores.
  Parts(std::string folder, std::string key, bool models)
      : folder_(std::move(folder)), key_(std::move(key)), models_(models) {}

  bool models() const override { return models_; }
  std::optional<Archive> find(std::size_t number) override;
  void add(std::size_t number, const Archive& archive) override;

  /// Removes the folder.
  void remove();
  /// Returns what is to be told: files that are of no use, or that could not be written; empty: nothing.
  std::string complaint() const;

 private:
  std::string path_of(std::size_t number) const;

  std::string folder_, key_;
  bool models_;
  mutable std::mutex mutex_;
  std::string complaint_;
};

}  // namespace screen
