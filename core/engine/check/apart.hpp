// Runs a test in a forked process, with a time limit. The parent has LibTorch loaded but unused and has run
// no plugin code: a start takes milliseconds, no thread is lost, and whatever the plugin does ends with the
// process.
#pragma once

#include <functional>
#include <string>

#include "core/check/tests.hpp"

namespace trainyard::check {

/// The result of a test.
struct Outcome {
  Verdict verdict = Verdict::pass;
  std::string what;    ///< the reason, in words; empty if the test passed
  std::string handed;  ///< a result for the caller; set only by the search for a run
};
inline Outcome failed(std::string what) {
  return {Verdict::fail, std::move(what), {}};
}

/// While it lives, a signal that asks the process to end makes apart() throw, so its caller can clean up.
class Stoppable {
 public:
  Stoppable();
  ~Stoppable();
  Stoppable(const Stoppable&) = delete;
  Stoppable& operator=(const Stoppable&) = delete;
};

/// Notes what the test does now; the report quotes it if the process dies without a message.
void doing(const std::string& what);
/// Returns the last note as ", while ..."; empty if there was none.
std::string done_last();

/// Runs `test` in a process of its own; returns its outcome, or how it ended. Throws Error if told to stop.
Outcome apart(double seconds, const std::string& said, const std::function<Outcome()>& test);

/// Starts a process from within a test, with no time limit of its own; `work` returns its exit code. Returns
/// its status, as waitpid does. Here and in apart(), output goes to the file `said`.
int forked(const std::string& said, const std::function<int()>& work);

/// "died by signal 11 (Segmentation fault)", "ended with exit code 0".
std::string end_text(int status);

}  // namespace trainyard::check
