// Trainings in processes of their own, which can be killed. Such a process is forked off one that has
// LibTorch loaded and has not used it yet: a start takes milliseconds, and no thread is lost on the way.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "contract/host_run.hpp"
#include "support/files.hpp"

namespace trainyard::contract {

/// A run file in a folder of its own, trained as `trainyard train` does, with the shipped plugins and those
/// of tests/faulty.
class Apart {
 public:
  /// The files that the text names may lie in `folder()`.
  explicit Apart(const std::string& text = {}) { write(text); }
  void write(const std::string& text) { file_ = folder_.write("run.toml", text); }
  const test::TempFolder& folder() const { return folder_; }
  std::string run() const { return folder_.path("run"); }

  /// Begins the run, or goes on with it, on so many ranks. Gives what waitpid says, of the first rank that did
  /// not end in order.
  int train(std::vector<std::string> sets, int ranks = 1) const {
    return ask("train", std::move(sets), ranks);
  }
  /// What `trainyard validate` makes of the run: data is read, and all that trains is built. One process, whatever
  /// the ranks.
  int check(std::vector<std::string> sets, int ranks = 1) const {
    return ask("check", std::move(sets), ranks);
  }
  /// What the first rank printed.
  std::string said() const;

 private:
  int ask(const std::string& verb, std::vector<std::string> sets, int ranks) const;

  test::TempFolder folder_;
  std::string file_;
};

/// Trains in a process of its own: code of plugins is never unmapped, a process has no room for that of a
/// thousand runs, and the more there is of it, the longer it takes to load more.
Outcome train_apart(const std::string& text, const std::vector<std::string>& sets = {});

}  // namespace trainyard::contract
