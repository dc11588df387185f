// A test in a process of its own, with a time limit. The process is forked off one that has LibTorch loaded and has not
// used it, nor run any code of a plugin: a start takes milliseconds, no thread is lost on the way, and whatever the
// plugin does ends with it.
#pragma once

#include <functional>
#include <string>

#include "core/check/tests.hpp"

namespace trainyard::check {

/// What a test found.
struct Outcome {
  Verdict verdict = Verdict::pass;
  std::string what;    ///< empty where it passed
  std::string handed;  ///< to whoever had the test run; of the search for a run
};
inline Outcome failed(std::string what) {
  return {Verdict::fail, std::move(what), {}};
}

/// While it lives, a signal that asks the process to end has apart() throw, so that whoever called it can clean up.
class Stoppable {
 public:
  Stoppable();
  ~Stoppable();
  Stoppable(const Stoppable&) = delete;
  Stoppable& operator=(const Stoppable&) = delete;
};

/// Says what is done now, for the report where the process ends without a word.
void doing(const std::string& what);
/// The same as the end of a sentence: ", while ..."; empty where nothing was said.
std::string done_last();

/// Runs a test and gives what it found, or how it ended otherwise. Throws Error where it is asked to stop. What it prints goes to the file `said`.
Outcome apart(double seconds, const std::string& said, const std::function<Outcome()>& test);

/// In a test: a further process, without a limit of its own, that ends with the code that `work` gives. What waitpid
/// says of it. What it prints goes to the file `said`.
int forked(const std::string& said, const std::function<int()>& work);

/// "died by signal 11 (Segmentation fault)", "ended with exit code 0".
std::string end_text(int status);

}  // namespace trainyard::check
