// resume.*, determinism.*, threads.*: runs that must end with the same bits.
#include <algorithm>
#include <csignal>

#include "core/check/remains.hpp"
#include "core/engine/check/groups.hpp"

namespace trainyard::check {
namespace {

enum class Files : std::uint8_t { same, other };

/// Returns what a run left, without the states of the host that differ as the run files of two runs do.
Remains left_of(const Trained& run, Files files) {
  Remains remains = remains_of(run.folder);
  if (files == Files::other)
    for (const char* state : {"state of run", "state of ledger"}) remains.erase(state);
  return remains;
}

/// Fails if one of two runs ended badly, or if they left something different.
Outcome same(const Trained& found, const Trained& expected, const std::string& how, const std::string& mend,
             Files files = Files::same) {
  doing(how);
  if (auto bad = bad_end(expected)) return *bad;
  if (auto bad = bad_end(found)) return *bad;
  const std::string differs = difference(left_of(found, files), left_of(expected, files));
  return differs.empty() ? Outcome{} : failed(how + ": " + differs + "; " + mend);
}

/// Settings: epochs of 3 steps (the last one smaller), 2 micro-batches a step, a checkpoint every 2 steps.
const std::vector<std::string> resumable = {"run.resume=auto", "trainer.max_duration=9ba",
                                            "checkpoint.interval=2ba", "data.train.batch_size=10",
                                            "data.train.micro_batch_size=5"};
constexpr std::int64_t kills[] = {5, 8};  // between two checkpoints, and right at one

}  // namespace

Outcome resume(const Subject& subject) {
  Training training{subject.run->text(), resumable};
  if (subject.file.manifest.kind != "checkpointer") training.text += "[checkpoint]\ntype = \"full\"\n";
  doing("a run saves checkpoints");
  const Trained whole = train(subject, training);
  if (auto bad = bad_end(whole)) return *bad;
  training.folder = fresh_folder(subject);
  for (const std::int64_t step : kills) {
    doing("a run is to be killed at step " + std::to_string(step));
    training.kill_at = step;
    const Trained killed = train(subject, training);
    if (killed.died_by(SIGKILL)) continue;
    if (auto bad = bad_end(killed)) return *bad;
    return failed("the run ended before it could be killed at step " + std::to_string(step));
  }
  training.kill_at = 0;
  return same(train(subject, training), whole, "a run that was killed at steps 5 and 8 and goes on",
              "save() has to hold all that a later step depends on, and load() to take it");
}

Outcome swap(const Subject& subject) {
  const std::string text = subject.run->text();
  const Trained plain = train(subject, {text});
  if (auto bad = bad_end(plain)) return *bad;
  const config::RunConfig config = valid(subject, text, {});
  const auto slot = std::ranges::find_if(config.slots, [&](const config::SlotConfig& each) {
    return each.kind == subject.file.manifest.kind && each.type == subject.file.manifest.name;
  });
  if (slot == config.slots.end()) return failed("the run has no slot with it");
  const std::string address = slot->kind == "dataset" ? "data" : slot->address();
  std::string swapped = text;
  for (std::int64_t step = 1; step < plain.result["steps"].get<std::int64_t>(); ++step)
    swapped +=
        "[[swap]]\nat = \"" + std::to_string(step) + "ba\"\nslot = \"" + address + "\"\nwatch = \"0ba\"\n";
  return same(train(subject, {swapped}), plain, "a run in which it is swapped with itself",
              "save() has to hold all that a later step depends on, and load() to take it", Files::other);
}

Outcome again(const Subject& subject) {
  const Trained first = train(subject, {subject.run->text()});
  for (const unsigned layout : {0xA5U, 0x17U, 0x01U}) {
    Outcome outcome =
        same(train(subject, {.text = subject.run->text(), .layout = layout}), first, "a second run",
             "random numbers come from host().random, members are initialised, and no order depends on "
             "addresses or the clock");
    if (outcome.verdict != Verdict::pass) return outcome;
  }
  return {};
}

Outcome same_process(const Subject& subject) {
  Trained first, second;
  for (Trained* trained : {&first, &second}) {
    doing(trained == &first ? "a run trains" : "a second run of the process trains");
    trained->folder = fresh_folder(subject);
    const int code = train_here(subject, {subject.run->text()}, trained->folder);
    trained->status = code << 8;
    trained->result = result_of(trained->folder);
  }
  return same(second, first, "a second run of the process",
              "what changes belongs into members, not into variables that are static or global");
}

Outcome workers(const Subject& subject) {
  const Trained first = train(subject, {subject.run->text()});
  for (const char* count : {"1", "4"}) {
    Outcome outcome =
        same(train(subject, {subject.run->text(), {std::string("data.workers=") + count}}), first,
             std::string("a run with data.workers = ") + count,
             "the threads that load call a dataset in any order: a sample may depend on its index alone",
             Files::other);
    if (outcome.verdict != Verdict::pass) return outcome;
  }
  return {};
}

Outcome two_threads(const Subject& subject) {
  const std::vector<std::string> two = {"run.threads.intra_op=2"};
  const std::string text = subject.run->text(), around = subject.run->without_plugin();
  Outcome outcome =
      same(train(subject, {text, two}), train(subject, {text}), "a run with run.threads.intra_op = 2",
           "cut sums by sizes that do not depend on the number of threads, unless it is LibTorch that "
           "cuts a large product",
           Files::other);
  if (outcome.verdict != Verdict::fail) return outcome;
  Subject bare = subject;
  bare.materials.sets.clear();  // They are for a run with the plugin.
  if (same(train(bare, {around, two}), train(bare, {around}), "", "", Files::other).verdict != Verdict::pass)
    return {Verdict::skip,
            "what is around it, " + subject.run->host->name + ", differs with 2 threads by itself",
            {}};
  outcome.verdict = Verdict::warn;  // nobody promises it
  return outcome;
}

}  // namespace trainyard::check
