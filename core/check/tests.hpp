// The tests of `trainyard plugins check`. The sentence of a test is its documentation, in --list and in every
// report: it states what is true of a plugin that passes. Torch-free.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard::check {

enum class Verdict : std::uint8_t { pass, fail, crash, warn, skip };
inline constexpr std::string_view verdict_names[] = {"pass", "fail", "crash", "warn", "skip"};

struct TestRow {
  std::string_view name;  ///< GROUP.NAME
  std::string_view sentence;
};

/// The tests, in the order in which they run.
inline constexpr TestRow tests[] = {
    {"static.seal", "the file has a manifest that this host reads, and was built for this host"},
    {"static.digest", "the code is what was sealed"},
    {"static.exports",
     "one symbol is exported, trainyard_plugin, and none is shared by all plugins of a process"},
    {"static.initialisers", "nothing of it runs when the file is opened"},
    {"static.libraries", "each library that it needs is to be found, and none is another LibTorch or SDK"},
    {"life.opens", "it opens, and describes itself as its seal says"},
    {"run.trains", "a small run of its kind trains with it"},
    {"life.thousand",
     "objects of it come and go 1,000 times, and leave no memory, thread or open file behind"},
    {"life.order", "an object that nothing was asked of can be saved, and goes in order"},
    {"ranks.sums",
     "what it makes of a bucket is the same on all ranks, to the bit, and points where the sum does"},
    {"ranks.states", "ranks that go on from what others saved sum to the bits that those do"},
    {"run.long", "a longer run, of 60 steps where there is time, ends in order"},
    {"run.quiet", "it prints nothing: messages go to the host's log"},
    {"options.bounds",
     "each option is taken at its bounds and refused beyond, and at the bounds a run ends in order"},
    {"options.random", "runs with random values that the manifest allows end in order, or with a message"},
    {"events.writes", "its hooks write nothing but what they declare"},
    {"state.round_trip", "what was saved, and loaded into a fresh object, is saved as the same"},
    {"state.truncated",
     "a state of which a part is missing or cut off is refused with a message, or is as none at all"},
    {"state.random", "a state of random values is taken or refused with a message"},
    {"state.older", "a state of an older version is taken or refused with a message"},
    {"resume.bits", "a run that was killed and goes on ends with the bits of one that was not"},
    {"resume.swap",
     "a run in which it is swapped with itself at every step ends with the bits of one without swaps"},
    {"determinism.again", "a second run, its memory laid out and filled otherwise, ends with the same bits"},
    {"determinism.process", "a second run in the same process ends with the same bits"},
    {"threads.workers", "runs with 0, 1 and 4 threads that load data end with the same bits"},
    {"threads.two", "runs with 1 and 2 threads that compute end with the same bits"},
    {"memory.steps", "memory does not grow from step to step"},
    {"faults.batch", "a batch of one sample is taken"},
    {"faults.diverging", "a run whose values overflow ends in order, or with a message"},
    {"time.hooks", "its calls take no longer than the rest of the run"},
};

struct Result {
  std::string_view test;
  Verdict verdict = Verdict::pass;
  std::string what;  ///< what was found, and how to mend it; empty if it passed
  double seconds = 0.0;
};

/// The results of one plugin.
struct Report {
  std::string plugin;  ///< "optimizer sgd"; the file where it cannot be read
  std::string path;
  std::vector<Result> results;

  bool passed() const;  ///< true if no test failed or crashed
};

/// Returns whether a test was selected: by its name, its group, or by giving no word at all.
bool wanted(std::string_view test, const std::vector<std::string>& only);

/// Returns a word of --only that names no test and no group; empty where there is none.
std::string unknown_word(const std::vector<std::string>& only);

}  // namespace trainyard::check
