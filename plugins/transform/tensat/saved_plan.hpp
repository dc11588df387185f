// A choice that was made once, as a file: who reads it takes the same graph without a search. Decisions rest on times, which are never the
// same twice; so the first that was made stays, for all runs on a machine that ask for the same.
#pragma once

#include <optional>
#include <string>

#include "search.hpp"

namespace tensat {

/// What a choice depends on.
struct PlanKey {
  std::string graph;    ///< hash_of the input
  std::string rules;    ///< rules_hash
  std::string machine;  ///< processor and version of LibTorch
  std::int64_t threads = 1;
  std::string way;  ///< how passes are computed
  std::int64_t samples = 1;
  std::string search;  ///< its limits
  bool operator==(const PlanKey&) const = default;
  std::string hash() const;
};
PlanKey key_of(const trainyard::Graph& graph, const Way& way, const Search& search);

struct SavedPlan {
  PlanKey key;
  Found found;
};
std::string text_of(const SavedPlan& plan);
/// Throws DataError, with the name, for a text that is no plan.
SavedPlan read_plan(const std::string& text, const std::string& name);

/// The folder that runs on this machine share: $XDG_CACHE_HOME/trainyard/tensat, or that below ~/.cache.
std::string shared_folder();

/// The first that comes takes a lock; others wait, and find what it left.
class Shared {
 public:
  /// Throws DataError where the folder cannot be written.
  explicit Shared(const std::string& folder);
  ~Shared();
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  std::optional<SavedPlan> find(const PlanKey& key) const;
  void keep(const SavedPlan& plan) const;
  /// Prices of this machine, for a number of threads.
  PriceTable prices(std::int64_t threads) const;
  void keep(const PriceTable& prices, std::int64_t threads) const;

 private:
  std::string folder_;
  int lock_ = -1;
};

/// Writes a file that appears whole. Throws DataError.
void write_file(const std::string& path, const std::string& text);

}  // namespace tensat
