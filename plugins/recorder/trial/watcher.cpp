#include "watcher.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include <trainyard/formats/trial_files.hpp>

namespace trial {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds second{1000};
/// Rules look back no further over the files of a run that is gone on with.
constexpr std::size_t most_recalled = 1000;

}  // namespace

Watcher::Watcher(std::vector<Collection> collections, std::size_t most_records, Host& host, std::string run,
                 bool notify)
    : host_(host),
      notify_(notify),
      notices_(std::move(run), [&host](const std::string& text) { host.log(LogLevel::warning, text); }),
      set_(std::move(collections),
           [&host](const std::string& id, const std::string& message) {
             host.log(LogLevel::warning, "rule " + id + ": " + message);
           }),
      queue_(most_records, most_bytes) {}

void Watcher::start() {
  if (thread_) return;
  hand(rules_);
  last_record_ = last_wait_ = std::chrono::steady_clock::now();
  thread_ = host_.thread("rules",
                         [this, shift = shift_.load()](const std::stop_token& stop) { work(stop, shift); });
}

void Watcher::stop(milliseconds patience) {
  if (!thread_) return;
  if (!queue_.drain(patience))
    if (const std::size_t left = queue_.clear(); left > 0)
      host_.log(LogLevel::warning, std::to_string(left) + " records were not shown to the rules: they took " +
                                       "longer than the run waits for them");
  hand({});
  thread_.reset();
}

/// These rules from here on. The thread that is in a call of another one, and does not come back, is left
/// with it.
void Watcher::hand(const std::vector<NamedRule>& rules) {
  const std::optional<std::string> left = set_.attach(rules, scale_);
  if (!left) return;
  const std::string what =
      "rule " + *left + " does not return from a call: it is left behind, and called no more";
  host_.log(LogLevel::warning, what);
  host_.journal("rule_left_behind", what);
  ++shift_;
  host_.leave(std::move(thread_));
  thread_ = nullptr;
}

void Watcher::attach(std::vector<NamedRule> rules, const RunScale& scale) {
  rules_ = std::move(rules);
  scale_ = scale;
  if (!thread_) return;
  hand(rules_);
  start();
}

bool Watcher::push(std::shared_ptr<const StepRecord> record) {
  const std::size_t bytes = bytes_of(*record), beside = room_beside(*record);
  return queue_.push(
      [this, record = std::move(record)] {
        if (record->mode != Mode::global)  // the machine goes on where the training hangs
          last_record_ = last_wait_ = std::chrono::steady_clock::now();
        set_.add(record, [this](const Verdict& verdict) { done(verdict); });
      },
      bytes, beside);
}

void Watcher::go_back(std::int64_t step) {
  queue_.push([this, step] { set_.go_back(step); }, 0);
}

void Watcher::recall(std::string folder, std::int64_t step) {
  queue_.push(
      [this, folder = std::move(folder), step] {
        try {
          const TrialReader trial(folder);
          std::vector<std::int64_t> steps = trial.steps(Mode::global);
          steps.erase(std::lower_bound(steps.begin(), steps.end(), step), steps.end());
          if (steps.size() > most_recalled) steps.erase(steps.begin(), steps.end() - most_recalled);
          for (const std::int64_t each : steps) set_.remember(trial.record(Mode::global, each));
        } catch (const std::exception& error) {
          host_.log(LogLevel::warning,
                    std::string("rules cannot look back over the resume: ") + error.what());
        }
      },
      0);
}

void Watcher::clear() {
  queue_.clear();
  queue_.drain(second);
}

std::vector<Firing> Watcher::take() {
  const std::lock_guard lock(mutex_);
  fired_ = false;
  return std::exchange(firings_, {});
}

void Watcher::work(const std::stop_token& stop, int shift) {
  while (!stop.stop_requested()) {
    if (const auto task = queue_.pop(stop, second)) (*task)();
    if (shift != shift_) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_wait_ >= second && !stop.stop_requested()) {
      last_wait_ = now;
      set_.waited(std::chrono::duration<double>(now - last_record_).count(),
                  [this](const Verdict& verdict) { done(verdict); });
      if (shift != shift_) return;
    }
    notices_.settle();
  }
  for (int i = 0; i < 100 && !notices_.settle(); ++i) std::this_thread::sleep_for(milliseconds(10));
}

/// A rule fired: told at once, as the loop may be what stands still.
void Watcher::done(const Verdict& verdict) {
  Firing firing = firing_of(verdict);
  host_.log(LogLevel::warning, "rule " + firing.text());
  if (notify_ && !firing.notify.empty()) notices_.send(firing);
  const std::lock_guard lock(mutex_);
  firings_.push_back(std::move(firing));
  fired_ = true;
}

}  // namespace trial
