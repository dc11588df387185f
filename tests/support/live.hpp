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

#include "core/config/load.hpp"
#include "core/config/resolve.hpp"
#include "core/control/client.hpp"
#include "core/control/commander.hpp"
#include "core/train/run.hpp"
#include "support/folder.hpp"

namespace trainyard::test {

/// A run file's text, which must be valid.
inline config::RunConfig config_of(const std::string& text, const std::vector<std::string>& sets,
                                   const plugins::Registry& registry) {
  const Folder folder;
  config::Resolution resolution =
      config::resolve(config::load({folder.write("run.toml", text)}, sets, {folder.path()}), registry);
  if (!resolution.config) throw std::runtime_error(resolution.findings.text() + "\n" + text);
  return std::move(*resolution.config);
}

/// `trainyard ctl RUN swap SLOT TYPE assignments...`
struct Ask {
  std::int64_t step;  ///< at its safe point
  std::string slot, type;
  std::vector<std::string> assignments;
  std::string carry, watch;
  bool beside = false;  ///< the run goes on while the swap is prepared; else it waits there for the answer
};

/// What a client was told.
struct Told {
  bool done = false;
  std::string text;
};

class LiveRun {
 public:
  LiveRun(const std::string& text, const plugins::Registry& registry, const std::vector<Ask>& asks = {},
          std::vector<control::DueSwap> due = {}, train::LoopParts parts = {})
      : asks_(asks.begin(), asks.end()),
        run_(config_of(text, {}, registry), registry),
        channel_(folder_.path()) {
    run_.build_model();
    parts.control = [this] { serve(); };
    parts.recover = [this](const Error& error) { return commander_->recover(error); };
    parts.checkpoint.put_off = [this] { return commander_->puts_off_checkpoint(); };
    run_.build_loop(std::move(parts));
    control::CommanderParts command{.run = &run_, .channel = &channel_};
    command.journal = [this](report::JournalEntry entry) {
      const std::lock_guard lock(mutex_);
      journal_.push_back(std::move(entry));
    };
    commander_.emplace(std::move(command), std::move(due));
  }

  /// Trains to the end; every answer is there then.
  void fit() {
    run_.loop().fit();
    commander_.reset();
    if (answer_) told_.push_back(answer_->get());
    answer_.reset();
  }

  train::Run& operator*() { return run_; }
  train::Run* operator->() { return &run_; }
  control::Commander& commander() { return *commander_; }

  /// Called at every safe point, before anything is obeyed.
  std::function<void()> at_safe_point = [] {};

  const std::vector<Told>& told() const { return told_; }
  /// Whole once fit() is over.
  const std::vector<report::JournalEntry>& journal() const { return journal_; }
  std::size_t count(const std::string& what) const {
    return static_cast<std::size_t>(
        std::count_if(journal_.begin(), journal_.end(),
                      [&](const report::JournalEntry& each) { return each.what == what; }));
  }

  /// Model, optimizer and last validation loss: what must not differ.
  std::string result() {
    const auto loss = run_.loop().latest().find("val/loss");
    return run_.model_digest() + " " + run_.optimizer_digest() + " " +
           (loss == run_.loop().latest().end() ? "" : std::to_string(loss->second)) + " " +
           std::to_string(run_.clock().step);
  }

 private:
  void serve() {
    at_safe_point();
    for (;;) {
      if (!answer_ && !asks_.empty() && asks_.front().step <= run_.clock().step) send();
      commander_->at_safe_point();
      if (!answer_) return;
      if (answer_->wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
        told_.push_back(answer_->get());
        answer_.reset();
        continue;
      }
      if (beside_) return;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  void send() {
    const Ask ask = asks_.front();
    asks_.pop_front();
    beside_ = ask.beside;
    control::Request request{.verb = control::Verb::swap};
    request.slot = ask.slot;
    request.type = ask.type;
    request.assignments = ask.assignments;
    request.carry = ask.carry;
    if (!ask.watch.empty()) request.watch = Duration::parse(ask.watch);
    answer_ = std::async(std::launch::async, [request, folder = folder_.path()]() -> Told {
      try {
        return {true, control::Client(folder).ask(request, std::chrono::minutes(2)).value("message", "")};
      } catch (const std::exception& error) {
        return {false, error.what()};
      }
    });
  }

  Folder folder_;
  std::deque<Ask> asks_;
  train::Run run_;
  control::Channel channel_;
  std::optional<control::Commander> commander_;
  std::optional<std::future<Told>> answer_;
  bool beside_ = false;
  std::vector<Told> told_;
  std::mutex mutex_;
  std::vector<report::JournalEntry> journal_;
};

}  // namespace trainyard::test
