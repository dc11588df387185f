// A run in this process that obeys its control socket, as `trainyard train` does, without the rest of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/cli/client.hpp"
#include "core/engine/swap/commander.hpp"
#include "core/engine/train/checkpoints.hpp"
#include "core/engine/train/run.hpp"
#include "core/rundir/run_directory.hpp"
#include "core/runfile/load.hpp"
#include "core/runfile/resolve.hpp"
#include "support/folder.hpp"

namespace trainyard::test {

/// Every shipped plugin, and those that misbehave for tests; scanned once.
inline const plugins::Registry& registry() {
  static const auto made =
      plugins::Registry::scan({TRAINYARD_PLUGIN_DIR, TRAINYARD_BINARY_DIR "/tests/faulty"});
  return made;
}

/// A run file's text, which must be valid.
inline config::RunConfig config_of(const std::string& text, const std::vector<std::string>& sets,
                                   const plugins::Registry& registry) {
  const Folder folder;
  config::Resolution resolution =
      config::resolve(config::load({folder.write("run.toml", text)}, sets, {folder.path()}), registry);
  if (!resolution.config) throw std::runtime_error(resolution.findings.text() + "\n" + text);
  return std::move(*resolution.config);
}

/// `trainyard ctl RUN swap SLOT TYPE assignments...`; without a type `set SLOT.assignment...`, without a slot
/// `eval`
struct Ask {
  std::int64_t step;  ///< at its safe point
  std::string slot, type;
  std::vector<std::string> assignments;
  std::string carry, watch;
  /// The run goes on while the swap is prepared, up to its last step but one; else it waits for the answer.
  bool beside = false;
};

/// A swap of the plan.
struct Due {
  std::int64_t step;
  config::SwapRequest swap;
};

/// What a client was told.
struct Told {
  bool done = false;
  std::string text;
};

/// Derive from it to be more of a host: log_due, record, use.
class LiveRun : public train::LoopHost {
 public:
  /// `registry` outlives the run. `parts` may bring a saver; by default checkpoints are the run's own.
  LiveRun(const std::string& text, const plugins::Registry& registry, const std::vector<Ask>& asks = {},
          const std::vector<Due>& due = {}, train::LoopParts parts = {})
      : directory_(report::RunDirectory::create(folder_ / "run", "", false)),
        asks_(asks.begin(), asks.end()),
        run_(config_of(text, {}, registry), registry, outputs()),
        channel_(std::in_place, directory_.path()) {
    run_.build_model();
    parts.host = this;
    checkpoints_.emplace(run_, *this, directory_.file("checkpoints"));
    if (parts.saver == nullptr) parts.saver = &*checkpoints_;
    run_.build_loop(std::move(parts));
    control::Ledger ledger;
    for (const Due& each : due)
      ledger.add({.number = 0, .who = "config", .step = each.step, .swaps = {each.swap}});
    commander_.emplace(run_, &*channel_, directory_, std::move(ledger));
  }

  ~LiveRun() override {
    commander_.reset();
    channel_.reset();  // nobody waits for an answer any more
  }

  /// Trains to the end; every answer is there then.
  void fit() {
    run_.loop().fit();
    commander_.reset();
    channel_.reset();
    journal_ = report::RunDirectory::read_journal(directory_.path());
    if (answer_) told_.push_back(std::exchange(answer_, std::nullopt)->get());
  }

  train::Run& operator*() { return run_; }
  train::Run* operator->() { return &run_; }
  /// Where its control socket is.
  const std::string& directory() const { return directory_.path(); }

  /// Called at every safe point, before anything is obeyed.
  std::function<void()> on_safe_point = [] {};
  /// Seconds that each safe point took at which a swap was committed.
  const std::vector<double>& pauses() const { return pauses_; }

  const std::vector<Told>& told() const { return told_; }
  /// Whole once fit() is over.
  const std::vector<report::JournalEntry>& journal() const { return journal_; }
  std::size_t count(const std::string& what) const {
    return static_cast<std::size_t>(
        std::count_if(journal_.begin(), journal_.end(),
                      [&](const report::JournalEntry& each) { return each.what == what; }));
  }

  /// Whether host or plugin logged a text with this part in it.
  bool logged(const std::string& part) {
    const std::lock_guard lock(log_mutex_);
    return std::any_of(log_.begin(), log_.end(),
                       [&](const std::string& each) { return each.find(part) != std::string::npos; });
  }

  /// Model, optimizer and last validation loss: what must not differ.
  std::string result() {
    const auto loss = run_.loop().latest().find("val/loss");
    return run_.states().model_digest() + " " + run_.states().optimizer_digest() + " " +
           (loss == run_.loop().latest().end() ? "" : std::to_string(loss->second)) + " " +
           std::to_string(run_.clock().step);
  }

 protected:
  void at_safe_point() override { serve(); }
  bool recover(const Error& error) override { return commander_->recover(error); }
  bool closing() override {
    commander_->close_watches();
    return true;
  }
  void complete(Snapshot& snapshot) override { commander_->complete(snapshot); }
  void open(train::ActivePlugin& plugin) override { checkpoints_->open(plugin); }
  void settle() override { checkpoints_->drain(); }
  void exchanged() override { checkpoints_->exchanged(); }

 private:
  train::HostOutputs outputs() {
    train::HostOutputs outputs;
    outputs.log = [this](LogLevel, const std::string& text) {
      const std::lock_guard lock(log_mutex_);
      log_.push_back(text);
    };
    return outputs;
  }

  void serve() {
    on_safe_point();
    for (;;) {
      if (!answer_ && !asks_.empty() && asks_.front().step <= run_.clock().step) send();
      obey();
      if (!answer_) return;
      if (answer_->wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
        told_.push_back(answer_->get());
        answer_.reset();
        continue;
      }
      if (beside_ && run_.clock().step + 1 < run_.clock().total_steps) return;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  void obey() {
    const std::int64_t swaps = run_.live().swaps;
    const auto began = std::chrono::steady_clock::now();
    commander_->at_safe_point();
    if (run_.live().swaps != swaps)
      pauses_.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }

  void send() {
    const Ask ask = asks_.front();
    asks_.pop_front();
    beside_ = ask.beside;
    control::Request request{.verb = ask.slot.empty()   ? control::Verb::eval
                                     : ask.type.empty() ? control::Verb::set
                                                        : control::Verb::swap};
    for (const std::string& each : ask.assignments)
      request.assignments.push_back(ask.type.empty() ? ask.slot + "." + each : each);
    if (!ask.type.empty()) {
      request.slot = ask.slot;
      request.type = ask.type;
      request.carry = ask.carry;
    }
    if (!ask.watch.empty()) request.watch = Duration::parse(ask.watch);
    answer_ = std::async(std::launch::async, [request, folder = directory_.path()]() -> Told {
      try {
        return {true, control::Client(folder).ask(request, std::chrono::minutes(2)).value("message", "")};
      } catch (const std::exception& error) {
        return {false, error.what()};
      }
    });
  }

  std::mutex log_mutex_;
  std::vector<std::string> log_;
  Folder folder_;
  report::RunDirectory directory_;
  std::deque<Ask> asks_;
  std::optional<train::Checkpoints> checkpoints_;
  train::Run run_;
  std::optional<control::Channel> channel_;
  std::optional<control::Commander> commander_;
  std::optional<std::future<Told>> answer_;
  bool beside_ = false;
  std::vector<Told> told_;
  std::vector<double> pauses_;
  std::vector<report::JournalEntry> journal_;
};

}  // namespace trainyard::test
