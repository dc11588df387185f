// What a power failure leaves of checkpoints and of a run's folder. Saves are made once, their file calls
// written down; then the power fails after every call, in every way in which the disk may have kept less than
// it was told (disk.hpp), and what is left is read as a resume reads it: the last complete step has to load,
// nothing mixed, nothing half removed. To show that the model is not too kind, each sync is then taken out of
// the calls in turn, and each order of renames turned round: those have to be found.
//   chaos_crash_states [--quick] [--seed N] [--keep FOLDER]      --keep: what is wrong first is left there
#include <sys/stat.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <trainyard/error.hpp>
#include <trainyard/formats/safetensors.hpp>

#include "core/engine/save/load.hpp"
#include "core/engine/save/store.hpp"
#include "core/rundir/folder.hpp"
#include "core/rundir/run_directory.hpp"
#include "plugins/checkpointer/cpr/shard_image.hpp"
#include "support/folder.hpp"
#include "support/saver.hpp"
#include "tools/chaos/disk.hpp"
#include "tools/chaos/recorded_calls.hpp"

namespace trainyard::chaos {
namespace {

namespace fs = std::filesystem;
using checkpoint::Loaded;
using checkpoint::Retention;
using checkpoint::Store;
using report::RunDirectory;
using report::Status;

/// Everything in the save of that number carries it.
Snapshot snapshot(std::int64_t step, std::int64_t number) {
  const auto value = static_cast<double>(number);
  Snapshot made{.step = step, .states = {}, .metrics = {{"val/loss", static_cast<double>(step % 30)}}};
  made.states.push_back({"run", "1", {{"number", number}}, {}});
  made.states.push_back(
      {"model", "1", {}, {{"weight", at::full({9, 7}, value)}, {"bias", at::full({9}, value)}}});
  made.states.push_back({"optimizer/adamw", "1", {{"number", number}}, {{"m", at::full({9, 7}, value)}}});
  made.states.push_back({"hook/ema", "1", {}, {{"weight", at::full({9, 7}, value)}}});
  return made;
}

/// The number that everything in it carries; -1 where it is mixed.
std::int64_t number_of(const Loaded& loaded) {
  const std::int64_t number = StateReader(*loaded.find("run")).integer("number");
  bool same = loaded.states.size() == 4 && checkpoint::step_of(loaded.path) == loaded.step;
  for (const State& state : loaded.states) {
    for (const auto& [name, value] : state.scalars) same = same && value == Scalar(number);
    for (const auto& [name, tensor] : state.tensors)
      same = same && tensor.eq(static_cast<double>(number)).all().item<bool>();
  }
  return same ? number : -1;
}

/// What was done, and what must be true of what a crash leaves of it.
struct Story {
  std::string name;
  std::vector<Call> calls;
  /// What is wrong; empty: nothing. `mark`: the last one that was passed.
  std::function<std::string(const std::string& folder, const Crash& crash, std::int64_t mark)> judge;
};

/// The calls since Recorder::begin, which are all that was done: the model ends with what the folder holds.
std::vector<Call> all_calls(const test::Folder& folder) {
  std::vector<Call> calls = recorder().end();
  Disk disk;
  for (const Call& call : calls) disk.apply(call);
  Tree real;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path()))
    real[fs::relative(entry.path(), folder.path()).string()] =
        entry.is_directory() ? std::nullopt : std::optional(test::read_file(entry.path().string()));
  if (disk.whole() != real) throw std::runtime_error("a call that changed a file was not written down");
  return calls;
}

// --- saves

/// Marks each save as it begins (2n - 1) and when it is over (2n), n from 1.
class MarkedStore final : public CheckpointStore {
 public:
  explicit MarkedStore(Store& store) : store_(store) {}
  void commit(const Snapshot& snapshot) override {
    const std::int64_t number = std::get<std::int64_t>(snapshot.states[0].scalars.at("number"));
    recorder().mark(2 * number - 1);
    store_.commit(snapshot);
    recorder().mark(2 * number);
  }

 private:
  Store& store_;
};

/// Every folder that counts is whole; the newest is the last save that was over, or the one that was under
/// way.
std::string judge_saves(const std::string& folder, std::int64_t over, std::int64_t under_way,
                        const std::vector<std::int64_t>& steps) {
  for (const std::string& each : checkpoint::list(folder))
    if (const std::vector<std::string> damages = checkpoint::verify(each); !damages.empty())
      return damages.front();
  std::string passed_over;
  const auto loaded = checkpoint::load_newest(folder, [&](const std::string& path, const std::string& why) {
    passed_over = path + " is damaged: " + why;
  });
  if (!passed_over.empty()) return passed_over;
  const std::int64_t number = loaded ? number_of(*loaded) : 0;
  if (number < 0) return loaded->path + " is mixed";
  if (number > 0 && loaded->step != steps.at(static_cast<std::size_t>(number - 1)))
    return loaded->path + " is of another step";
  if (number == over || (number == under_way && under_way > 0)) return {};
  return "save " + std::to_string(number) + " loads; " + std::to_string(over) + " was over";
}

/// `latest` and `best` are whole names, and, where the file system keeps the order of names, of folders that are there.
std::string judge_names(const std::string& folder, bool ordered) {
  for (const std::string file : {"latest", "best"}) {
    if (!fs::exists(folder + "/" + file)) continue;
    const std::string text = test::read_file(folder + "/" + file);
    const std::string name = text.substr(0, text.find('\n'));
    if (text != name + '\n' || !checkpoint::step_of(name)) return file + " is no name: \"" + name + "\"";
    if (ordered && !fs::exists(folder + "/" + name)) return file + " names a folder that is gone: " + name;
  }
  return {};
}

/// The next start of the run sweeps; nothing that counts may go.
std::string judge_sweep(const std::string& folder, const Retention& retention) {
  const std::vector<std::string> before = checkpoint::list(folder);
  { const Store store(folder, retention); }
  if (checkpoint::list(folder) != before) return "the sweep removed a checkpoint";
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != "latest" && name != "best" && !checkpoint::step_of(name)) return "the sweep left " + name;
  }
  return {};
}

Story saves(const std::string& name, const std::string& checkpointer, const Retention& retention,
            const std::vector<std::int64_t>& steps, std::size_t starts_again_after) {
  const test::Folder folder;
  recorder().begin(folder.path());
  for (std::size_t i = 0; i < steps.size();) {
    Store store(folder / "checkpoints", retention);
    MarkedStore marked(store);
    test::Saver saver(checkpointer, marked);
    for (const std::size_t end = i < starts_again_after ? std::min(starts_again_after, steps.size())
                                                        : steps.size();
         i < end; ++i)
      saver.plugin->take(snapshot(steps[i], static_cast<std::int64_t>(i) + 1));
    saver.plugin->drain();
    if (i < steps.size()) {  // as a kill leaves it
      fs::create_directory(folder / "checkpoints/step-00000099.tmp-1-1");
      std::ofstream(folder / "checkpoints/step-00000099.tmp-1-1/manifest.json") << "half of one";
      fs::create_directory(folder / "checkpoints/step-00000001.old-1-2");
    }
  }
  Story story{name + ", " + checkpointer, all_calls(folder), {}};
  story.judge = [=](const std::string& path, const Crash& crash, std::int64_t mark) {
    const std::string checkpoints = path + "/checkpoints";
    std::string wrong = judge_saves(checkpoints, mark / 2, (mark + 1) / 2, steps);
    if (wrong.empty()) wrong = judge_names(checkpoints, crash.ordered);
    return wrong.empty() ? judge_sweep(checkpoints, retention) : wrong;
  };
  return story;
}

// --- a run's folder: what is asked of it, its result, a resume

constexpr const char* old_config = "schema = 1\n";
constexpr const char* new_config = "schema = 1\n# to be trained on\n";

/// The marks of its story, each when it is over.
enum Moment : std::int64_t {
  nothing,
  created,
  asked_first,
  saved_first,
  asked_second,
  saved_second,
  completed,
  goes_on,  ///< begins to
  extended,
  asked_third,
  saved_third,
  interrupted,
};

void note(RunDirectory& directory, const std::string& details, std::int64_t moment) {
  directory.journal({1, "host", "stop_epoch", "a note that nothing depends on", {}});
  directory.journal({1, "ctl", "swap", "another optimizer", details});
  recorder().mark(moment);
}

void save(Store& store, std::int64_t number, std::int64_t moment) {
  store.commit(snapshot(10 * number, number));
  recorder().mark(moment);
}

void finish(RunDirectory& directory, Status status, std::int64_t number, std::int64_t moment) {
  write_safetensors(directory.file("model.safetensors"),
                    {{"weight", at::full({9, 7}, static_cast<double>(number))}});
  directory.finish({.status = status, .steps = 10 * number});
  recorder().mark(moment);
}

std::string judge_result(const std::string& path, std::int64_t mark) {
  const std::optional<Status> status = RunDirectory::status(path);
  const bool extended_config = RunDirectory::read_config(path) == new_config;
  const auto is = [&](std::optional<Status> wanted) { return status == wanted; };
  const bool right = mark < saved_second  ? is({})
                     : mark < completed   ? is({}) || is(Status::completed)
                     : mark < goes_on     ? is(Status::completed)
                     : mark < extended    ? is({}) || (is(Status::completed) && !extended_config)
                     : mark < saved_third ? is({})
                     : mark < interrupted ? is({}) || is(Status::interrupted)
                                          : is(Status::interrupted);
  if (!right) return "result.json says " + (status ? std::to_string(static_cast<int>(*status)) : "nothing");
  if (!status) return {};
  const double number = *status == Status::completed ? 2 : 3;
  for (const NamedTensor& each : read_safetensors(path + "/model.safetensors"))
    if (!each.tensor.eq(number).all().item<bool>()) return "model.safetensors is another one";
  return {};
}

/// Requests that a resume repeats are there, in order, and take others behind them.
std::string judge_journal(const std::string& path, std::int64_t mark) {
  const std::vector<std::string> asked = {"number = 1\n", "number = 2\n", "number = 3\n", "number = 4\n"};
  const auto promised =
      static_cast<std::size_t>((mark >= asked_first) + (mark >= asked_second) + (mark >= asked_third));
  RunDirectory directory = RunDirectory::extend(path);
  const auto found = [&] {
    std::vector<std::string> details;
    for (const report::JournalEntry& each : RunDirectory::read_journal(path))
      if (!each.details.empty()) details.push_back(each.details);
    return details;
  };
  std::vector<std::string> before = found();
  if (before.size() < promised || before.size() > promised + 1 ||
      !std::equal(before.begin(), before.end(), asked.begin()))
    return "the journal holds " + std::to_string(before.size()) + " requests, " + std::to_string(promised) +
           " were written down";
  directory.journal({2, "ctl", "swap", "one more", asked.back()});
  before.push_back(asked.back());
  return found() == before ? "" : "a request behind a torn line is lost";
}

std::string judge_run(const std::string& folder, bool ordered, std::int64_t mark) {
  const std::string path = folder + "/runs/digits";
  if (!RunDirectory::holds_run(path)) {
    if (mark >= created) return "the run is gone";
    RunDirectory::create(path, old_config, false);
    return {};
  }
  const std::string config = RunDirectory::read_config(path);
  if (config != (mark < extended ? old_config : new_config) && !(mark == goes_on && config == new_config))
    return "config.toml is not what it was";
  const std::int64_t saved = (mark >= saved_first) + (mark >= saved_second) + (mark >= saved_third);
  const std::int64_t under_way =
      mark == asked_first || mark == asked_second || mark == asked_third ? saved + 1 : 0;
  std::string wrong = judge_saves(path + "/checkpoints", saved, under_way, {10, 20, 30});
  if (wrong.empty()) wrong = judge_names(path + "/checkpoints", ordered);
  if (wrong.empty()) wrong = judge_result(path, mark);
  return wrong.empty() ? judge_journal(path, mark) : wrong;
}

Story run_folder() {
  const test::Folder folder;
  const std::string path = folder / "runs/digits";
  recorder().begin(folder.path());
  {
    RunDirectory directory = RunDirectory::create(path, old_config, false);
    recorder().mark(created);
    note(directory, "number = 1\n", asked_first);
    Store store(path + "/checkpoints", {});
    save(store, 1, saved_first);
    note(directory, "number = 2\n", asked_second);
    save(store, 2, saved_second);
    finish(directory, Status::completed, 2, completed);
  }
  recorder().mark(goes_on);
  RunDirectory directory = RunDirectory::extend(path);
  directory.set_config(new_config);
  recorder().mark(extended);
  note(directory, "number = 3\n", asked_third);
  Store store(path + "/checkpoints", {});
  save(store, 3, saved_third);
  finish(directory, Status::interrupted, 3, interrupted);
  return {"a run's folder, result and resume", all_calls(folder),
          [](const std::string& at, const Crash& crash, std::int64_t mark) {
            return judge_run(at, crash.ordered, mark);
          }};
}

// --- what cpr remembers of the rows that were lost

/// Before the first write there is no file.
std::string losses_text(std::int64_t number) {
  return number == 0 ? "" : "what was lost, the " + std::to_string(number) + ". time";
}

Story losses() {
  const test::Folder folder;
  recorder().begin(folder.path());
  fs::create_directory(folder / "tables");
  cpr::sync_folder(folder.path());
  for (std::int64_t number = 1; number <= 3; ++number) {
    cpr::replace_file(folder / "tables", "losses.json", losses_text(number));
    recorder().mark(number);
  }
  return {"losses.json of cpr", all_calls(folder),
          [](const std::string& at, const Crash&, std::int64_t mark) -> std::string {
            const std::string file = at + "/tables/losses.json";
            const std::string found = fs::exists(file) ? test::read_file(file) : "";
            if (found == losses_text(mark) || found == losses_text(mark + 1)) return {};
            return "losses.json holds \"" + found + "\" after write " + std::to_string(mark);
          }};
}

// --- crashes

struct Tally {
  std::int64_t states = 0, wrong = 0;
  std::string first;  ///< what is wrong first, and after which call
};

struct Wish {
  std::size_t choices;  ///< of names, at each moment
  std::uint64_t seed;
  bool until_wrong;
  std::string keep;
};

void write(const Tree& tree, const std::string& folder) {
  fs::remove_all(folder);
  fs::create_directory(folder);
  for (const auto& [name, content] : tree) {
    const std::string path = folder + "/" + name;
    if (content)
      std::ofstream(path, std::ios::binary) << *content;
    else
      fs::create_directory(path);
  }
}

std::string text(const Call& call) {
  static constexpr const char* words[] = {"make",  "mkdir", "remove", "rename", "exchange",
                                          "write", "cut",   "sync",   "mark"};
  return std::string(words[static_cast<int>(call.what)]) + " " + call.name +
         (call.to.empty() ? "" : " to " + call.to);
}

/// The power fails after every call from the one numbered `from` on.
Tally crash(const Story& story, const Wish& wish, std::size_t from) {
  const test::Folder scratch;
  const std::string folder = scratch / "disk";
  std::mt19937_64 random(wish.seed);
  Tally tally;
  Disk disk;
  std::int64_t mark = 0;
  for (std::size_t i = 0; i < story.calls.size(); ++i) {
    const Call& call = story.calls[i];
    disk.apply(call);
    if (call.what == Call::What::mark) mark = call.offset;
    if (i < from) continue;
    disk.crashes(random, wish.choices, [&](const Crash& left) {
      if (wish.until_wrong && tally.wrong > 0) return;
      ++tally.states;
      write(left.tree, folder);
      std::string wrong;
      try {
        wrong = story.judge(folder, left, mark);
      } catch (const std::exception& error) {
        wrong = error.what();
      }
      if (wrong.empty() || tally.wrong++ > 0) return;
      for (std::size_t at; (at = wrong.find(folder + "/")) != wrong.npos;) wrong.erase(at, folder.size() + 1);
      tally.first = "after call " + std::to_string(i + 1) + " (" + text(call) + "): " + wrong;
      if (!wish.keep.empty()) write(left.tree, wish.keep);
    });
    if (wish.until_wrong && tally.wrong > 0) break;
  }
  return tally;
}

// --- what has to be found

/// The name that a node was made with, its numbers left out: "step-N.tmp-N/model.safetensors".
std::vector<std::string> names_of(const std::vector<Call>& calls) {
  std::vector<std::string> names = {""};
  for (const Call& call : calls) {
    if (call.what != Call::What::make_file && call.what != Call::What::make_folder) continue;
    std::string name = names.at(static_cast<std::size_t>(call.folder));
    if (!name.empty()) name += '/';
    for (const char each : call.name)
      if (each < '0' || each > '9') name += each;
    names.push_back(std::move(name));
  }
  return names;
}

/// Where a save gets its name.
bool publishes(const Call& call) {
  return (call.what == Call::What::rename || call.what == Call::What::exchange) &&
         checkpoint::step_of(call.to);
}

/// A change to the calls of a story that must be found.
struct Harm {
  std::string what;
  std::vector<Call> calls;
  std::size_t from;  ///< the first call that is another one
};

std::vector<Harm> without_each_sync(const Story& story) {
  const std::vector<std::string> names = names_of(story.calls);
  std::vector<Harm> harms;
  std::string renamed;
  for (std::size_t i = 0; i < story.calls.size(); ++i) {
    const Call& call = story.calls[i];
    if (call.what == Call::What::rename)
      renamed = call.to.find(".old-") != call.to.npos ? "old ones" : "a save";
    if (call.what != Call::What::sync) continue;
    std::string what = names.at(static_cast<std::size_t>(call.node));
    if (what.find("/checkpoints") != what.npos) what.erase(0, what.find("/checkpoints") + 1);
    if (what.ends_with("checkpoints")) what += ", " + renamed + " renamed";
    Harm harm{"no sync of " + (what.empty() ? "the folder" : what), story.calls, i};
    harm.calls.erase(harm.calls.begin() + static_cast<std::ptrdiff_t>(i));
    harms.push_back(std::move(harm));
  }
  return harms;
}

/// Each call that `late` is true of, moved ahead of the call that `early` is true of in the same save.
template <class Late, class Early>
std::vector<Harm> moved_ahead(const std::string& what, const Story& story, const Late& late,
                              const Early& early) {
  std::vector<Harm> harms;
  std::ptrdiff_t target = -1;
  for (std::size_t i = 0; i < story.calls.size(); ++i) {
    const Call& call = story.calls[i];
    const auto at = static_cast<std::ptrdiff_t>(i);
    if (call.what == Call::What::mark) target = -1;
    if (target < 0 && early(call)) target = at;
    if (target < 0 || !late(call)) continue;
    Harm harm{what, story.calls, static_cast<std::size_t>(target)};
    const auto begin = harm.calls.begin();
    std::rotate(begin + target, begin + at, begin + at + 1);
    harms.push_back(std::move(harm));
  }
  return harms;
}

std::vector<Harm> harms_of(const Story& story) {
  std::vector<Harm> harms = without_each_sync(story);
  const auto renames_to = [](std::string_view part) {
    return [=](const Call& call) {
      return call.what == Call::What::rename && call.to.find(part) != call.to.npos;
    };
  };
  const auto syncs = [](const Call& call) { return call.what == Call::What::sync; };
  for (const std::vector<Harm>& more :
       {moved_ahead("a save has its name before it is on the disk", story, publishes, syncs),
        moved_ahead("`latest` moves before the save has its name", story, renames_to("latest"), publishes),
        moved_ahead("old ones go before `best` moves", story, renames_to(".old-"), renames_to("best")),
        moved_ahead("old ones go before the save has its name", story, renames_to(".old-"), publishes)})
    harms.insert(harms.end(), more.begin(), more.end());
  return harms;
}

/// Each way of harm to any of the stories is found in one place at least (`once`: no more are looked for
/// then). True where all are.
bool all_found(const std::vector<Story>& stories, Wish wish, bool once) {
  struct Found {
    int tried = 0, found = 0;
    std::string first;
  };
  std::map<std::string, Found> ways;
  wish.until_wrong = true;
  wish.keep.clear();
  for (const Story& story : stories)
    for (Harm& harm : harms_of(story)) {
      Found& way = ways[harm.what];
      if (once && way.found > 0) continue;
      const Tally tally = crash({story.name, std::move(harm.calls), story.judge}, wish, harm.from);
      ++way.tried;
      if (tally.wrong == 0 || way.found++ > 0) continue;
      way.first = tally.first;
    }
  bool all = true;
  std::printf("  %-58s %6s %6s   %s\n", "done to the calls on purpose", "times", "found", "the first");
  for (const auto& [what, way] : ways) {
    std::printf("  %-58s %6d %6d   %s\n", what.c_str(), way.tried, way.found, way.first.c_str());
    all = all && way.found > 0;
  }
  return all;
}

int main(int argc, char** argv) {
  bool quick = false;
  Wish wish{.choices = 1024, .seed = 17, .until_wrong = false, .keep = {}};
  for (int i = 1; i < argc; ++i) {
    quick = quick || std::strcmp(argv[i], "--quick") == 0;
    if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) wish.seed = std::stoull(argv[i + 1]);
    if (std::strcmp(argv[i], "--keep") == 0 && i + 1 < argc) wish.keep = argv[i + 1];
  }
  if (quick) wish.choices = 16;
  at::set_num_threads(1);
  if (::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 0);  // thousands of small folders
  std::vector<Story> stories;
  for (const char* checkpointer : {"full", "async"}) {
    stories.push_back(saves("one is kept", checkpointer, {}, {10, 20, 30}, 2));
    if (quick && stories.size() > 1) break;  // the calls are the same
    stories.push_back(saves("two, multiples and the best kept", checkpointer,
                            {.keep_last = 2, .keep_every = 20, .keep_best = KeepBest{"val/loss", "min", 1}},
                            quick ? std::vector<std::int64_t>{10, 20, 30, 40, 50}
                                  : std::vector<std::int64_t>{10, 20, 30, 40, 50, 60, 70, 80},
                            99));
    stories.push_back(
        saves("all are kept; the run goes back", checkpointer, {.keep_last = 9}, {10, 20, 30, 20, 25}, 3));
  }
  stories.push_back(losses());
  stories.push_back(run_folder());

  std::printf("What a power failure leaves (seed %llu)\n  %-58s %6s %8s %8s %6s\n",
              static_cast<unsigned long long>(wish.seed), "", "calls", "states", "right", "wrong");
  bool good = true;
  for (const Story& story : stories) {
    const Tally tally = crash(story, wish, 0);
    std::printf("  %-58s %6zu %8lld %8lld %6lld%s%s\n", story.name.c_str(), story.calls.size(),
                static_cast<long long>(tally.states), static_cast<long long>(tally.states - tally.wrong),
                static_cast<long long>(tally.wrong), tally.first.empty() ? "" : "   ", tally.first.c_str());
    good = good && tally.wrong == 0;
  }
  if (!good) std::printf("  A bar is missed: nothing may be wrong.\n");
  const std::vector<Story> told = {stories[0], stories[1], stories[2], stories[stories.size() - 2],
                                   stories.back()};
  if (!all_found(told, wish, quick)) {
    std::printf("  A bar is missed: what is done to the calls on purpose has to be found.\n");
    good = false;
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace trainyard::chaos

int main(int argc, char** argv) {
  return trainyard::chaos::main(argc, argv);
}
