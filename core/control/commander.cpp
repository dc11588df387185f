#include "core/control/commander.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/config/swap.hpp"
#include "core/report/signal_stack.hpp"
#include "core/train/guard.hpp"

namespace trainyard::control {
namespace {

constexpr int most_commands = 8;  ///< obeyed at one safe point
constexpr const char* control_thread = "control";

Snapshot copy_of(const Snapshot& snapshot) {
  Snapshot copy = snapshot;
  for (State& state : copy.states)
    for (auto& [name, tensor] : state.tensors) tensor = tensor.detach().clone();
  return copy;
}

std::string what(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "something that is no std::exception";
  }
}

}  // namespace

Commander::Commander(CommanderParts parts, std::vector<DueSwap> due)
    : parts_(std::move(parts)), due_(due.begin(), due.end()), thread_([this] { work(); }) {
  std::stable_sort(due_.begin(), due_.end(),
                   [](const DueSwap& a, const DueSwap& b) { return a.step < b.step; });
}

Commander::~Commander() {
  hand_on();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

/// The thread that prepares swaps and lets go of what was replaced.
void Commander::work() {
  pthread_setname_np(pthread_self(), control_thread);
  const report::SignalStack signal_stack;
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto ready = [&] { return closing_ || !tasks_.empty(); };
    if (!expecting_)
      wake_.wait(lock, ready);
    else if (!wake_.wait_for(lock, std::chrono::milliseconds(1), ready))
      continue;
    if (tasks_.empty()) return;
    {
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }  // what it let go of has ended, too, before the lock is taken again
    lock.lock();
    finished_.notify_all();
  }
}

void Commander::later(std::function<void()> task) {
  added_.push_back(std::move(task));
}

/// Once a safe point. To wake a thread takes as long as to commit a swap: one that has prepared something
/// looks for what comes of it by itself.
void Commander::hand_on() {
  if (added_.empty()) return;
  bool awake = false;
  {
    const std::lock_guard lock(mutex_);
    for (std::function<void()>& task : added_) tasks_.push_back(std::move(task));
    awake = std::exchange(expecting_, current_ != nullptr);
  }
  added_.clear();
  if (!awake) wake_.notify_one();
}

void Commander::start(const std::shared_ptr<Job>& job) {
  later([this, job] {
    try {
      job->prepared = parts_.run->prepare(job->request);
    } catch (...) {
      job->error = std::current_exception();
    }
    job->done = true;
  });
}

void Commander::wait_for(const Job& job) {
  hand_on();
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return job.done.load(); });
}

/// Plugins may take their time to end: not on the loop thread.
void Commander::retire(std::unique_ptr<train::PreparedSwap> swap) {
  if (swap) later([gone = std::shared_ptr<train::PreparedSwap>(std::move(swap))] {});
}

void Commander::at_safe_point() {
  const Clock& clock = parts_.run->clock();
  if (watched_ &&
      (clock.step >= watched_->until || clock.epoch != watched_->epoch || clock.step == clock.total_steps))
    settle();
  while (!due_.empty() && due_.front().step <= clock.step) {
    settle();
    put_back();
    const auto job = std::make_shared<Job>();
    job->request = std::move(due_.front().request);
    job->who = std::move(due_.front().who);
    due_.pop_front();
    start(job);
    wait_for(*job);
    if (job->error) std::rethrow_exception(job->error);
    commit(job);
  }
  finish();
  prepare_next();
  if (!checkpoints_.empty()) answer_checkpoints();
  hand_on();
  if (parts_.channel == nullptr) return;
  if (parts_.channel->pending()) obey();
  while (paused_ && (parts_.signal == nullptr || *parts_.signal == 0)) {
    if (parts_.channel->wait(std::chrono::milliseconds(current_ ? 1 : 50))) obey();
    finish();
    prepare_next();
    answer_checkpoints();
    hand_on();
  }
}

/// The swap that was watched has done well: it stays. Throws where it has not.
void Commander::settle() {
  if (!watched_) return;
  parts_.run->check_weights();
  retire(std::move(watched_->job->prepared));
  watched_.reset();
  put_off_ = false;
}

bool Commander::puts_off_checkpoint() {
  return put_off_ = watched_.has_value();
}

/// The run is about to be another one than the swap in preparation was made for: it is prepared once more.
void Commander::put_back() {
  if (!current_) return;
  wait_for(*current_);
  const auto again = std::make_shared<Job>();
  again->request = current_->request;
  again->who = current_->who;
  again->reply = current_->reply;
  retire(std::move(current_->prepared));
  current_.reset();
  waiting_.push_front(again);
}

void Commander::prepare_next() {
  if (current_ || waiting_.empty()) return;
  current_ = std::move(waiting_.front());
  waiting_.pop_front();
  start(current_);
}

/// Commits what a client asked for and is prepared, or tells why not; the run goes on either way.
void Commander::finish() {
  if (!current_ || !current_->done) return;
  if (!current_->error) settle();
  const std::shared_ptr<Job> job = std::exchange(current_, nullptr);
  std::string done, refused;
  try {
    if (job->error) std::rethrow_exception(job->error);
    done = commit(job);
  } catch (...) {
    refused = what(std::current_exception());
    retire(std::move(job->prepared));
    note(job->who, "swap_refused", config::text(job->request) + ": " + refused);
  }
  if (!job->reply) return;
  Reply& reply = *job->reply;
  const auto add = [](std::string& lines, const std::string& line) {
    if (!line.empty()) lines += (lines.empty() ? "" : "\n") + line;
  };
  add(reply.done, done);
  add(reply.refused, refused);
  if (--reply.open > 0) return;
  later([answered = job->reply] {  // after the journal
    Reply& reply = *answered;
    if (reply.refused.empty())
      reply.command.answer({{"message", reply.done}});
    else
      reply.command.refuse(reply.refused + (reply.done.empty() ? "" : "\nbut done: " + reply.done));
  });
}

/// Puts a prepared swap into the run, and says what that was.
std::string Commander::commit(const std::shared_ptr<Job>& job) {
  train::Run& run = *parts_.run;
  const Clock& clock = run.clock();
  std::int64_t watch = 0;
  if (const std::optional<Duration> length = Duration::parse(job->request.watch))
    watch = length->steps(run.scale()).value_or(0);
  std::optional<Snapshot> before;
  if (watch > 0) before = copy_of(run.snapshot());
  run.commit(*job->prepared);
  std::string text = job->prepared->text() + ", at step " + std::to_string(clock.step);
  ++generations_[job->request.slot];
  note_later({clock.step, job->who, "swap", text, "number = " + std::to_string(run.swaps()) + "\n"}, job);
  parts_.swapped();
  if (before)
    watched_.emplace(Watched{job, std::move(*before), clock.step + watch, clock.epoch});
  else
    retire(std::move(job->prepared));
  return text;
}

bool Commander::recover(const Error& error) {
  if (!watched_) return false;
  const Watched watched = std::move(*watched_);
  watched_.reset();
  put_back();
  const std::string text = watched.job->prepared->text();
  const std::int64_t number = parts_.run->swaps();
  const std::int64_t failed_at = parts_.run->clock().step + 1;
  parts_.run->roll_back(*watched.job->prepared, watched.before);
  --generations_[watched.job->request.slot];
  const std::int64_t step = parts_.run->clock().step;
  note_later({step, watched.job->who, "swap_rolled_back",
              text + ", from step " + std::to_string(failed_at) + " back to step " + std::to_string(step) +
                  ": " + error.what(),
              "number = " + std::to_string(number) + "\n"},
             nullptr);
  if (std::exchange(put_off_, false))
    parts_.run->loop().request(Control::checkpoint, "host", "put off while the swap was watched");
  parts_.warn(text + " is taken back: " + error.what());
  parts_.swapped();
  retire(std::move(watched.job->prepared));
  return true;
}

void Commander::obey() {
  for (int i = 0; i < most_commands; ++i) {
    std::optional<Command> command = parts_.channel->take();
    if (!command) return;
    obey(std::move(*command));
  }
}

void Commander::obey(Command command) {
  train::Loop& loop = parts_.run->loop();
  const Request& request = command.request();
  const auto say = [&](const std::string& message) { command.answer({{"message", message}}); };
  const std::string here = "at step " + std::to_string(parts_.run->clock().step);
  try {
    switch (request.verb) {
      case Verb::status: command.answer(Json(status())); return;
      case Verb::set:
        ask_swaps(std::move(command), config::swaps_of(parts_.run->config().resolved, request.assignments));
        return;
      case Verb::swap: {
        config::SwapRequest swap{.slot = request.slot, .type = request.type, .options = {}};
        for (const std::string& assignment : request.assignments) config::assign(swap.options, assignment);
        if (!request.carry.empty()) swap.carry = config::carry_of(request.carry);
        if (request.watch) swap.watch = request.watch->text();
        ask_swaps(std::move(command), {std::move(swap)});
        return;
      }
      case Verb::pause:
        if (!paused_) note("ctl", "pause", "");
        paused_ = true;
        say("paused " + here);
        return;
      case Verb::resume:
        if (paused_) note("ctl", "resume", "");
        say(paused_ ? "goes on " + here : "was not paused");
        paused_ = false;
        return;
      case Verb::checkpoint:
        settle();
        loop.checkpoint();
        checkpoints_.push_back({std::move(command), parts_.run->clock().step});
        answer_checkpoints();
        return;
      case Verb::eval: {
        if (loop.evaluations().empty())
          return command.refuse("the run has neither [data.val] nor [data.test]");
        Json values = Json::object();
        std::string message = "evaluated " + here;
        for (const auto& [name, value] : loop.evaluate(loop.evaluations().front())) {
          values[name] = number(value);
          message += "\n  " + name + "  " + std::to_string(value);
        }
        command.answer({{"message", message}, {"metrics", std::move(values)}});
        return;
      }
      case Verb::stop:
        paused_ = false;
        loop.request(Control::stop_run, "ctl", "asked to");
        say("stops " + here);
        return;
    }
  } catch (const Error& error) {
    command.refuse(error.what());
  }
}

void Commander::ask(config::SwapRequest request, const std::string& who) {
  const auto job = std::make_shared<Job>();
  job->request = std::move(request);
  job->who = who;
  waiting_.push_back(job);
}

void Commander::ask_swaps(Command command, std::vector<config::SwapRequest> requests) {
  const auto reply = std::make_shared<Reply>(Reply{std::move(command), requests.size(), {}, {}});
  for (config::SwapRequest& request : requests) {
    const auto job = std::make_shared<Job>();
    job->request = std::move(request);
    job->who = "ctl";
    job->reply = reply;
    waiting_.push_back(job);
  }
}

void Commander::answer_checkpoints() {
  const auto [path, step] = parts_.last_checkpoint();
  while (!checkpoints_.empty() && checkpoints_.front().step <= step) {
    checkpoints_.front().command.answer({{"message", "saved in " + path}, {"path", path}});
    checkpoints_.pop_front();
  }
}

Status Commander::status() const {
  train::Run& run = *parts_.run;
  const train::Loop& loop = run.loop();
  const Clock& clock = run.clock();
  Status status;
  status.run = run.config().name;
  status.pid = getpid();
  status.state = paused_ ? RunState::paused : RunState::training;
  status.step = clock.step;
  status.total_steps = clock.total_steps;
  status.epoch = clock.epoch;
  status.seconds = loop.seconds_trained();
  for (const auto& [name, value] : loop.latest()) status.metrics.emplace(name, value);
  if (const auto speed = loop.latest().find("samples_per_second"); speed != loop.latest().end())
    status.samples_per_second = speed->second;
  if (clock.step > 0 && clock.total_steps > 0)
    status.seconds_left = status.seconds / static_cast<double>(clock.step) *
                          static_cast<double>(clock.total_steps - clock.step);
  for (train::ActivePlugin& plugin : run.plugins()) {
    const auto swaps = generations_.find(plugin.slot().address());
    status.slots.push_back({.slot = plugin.slot().address(),
                            .type = plugin.slot().type,
                            .version = plugin.manifest().version,
                            .generation = swaps == generations_.end() ? 0 : swaps->second,
                            .digest = plugin.file().digest,
                            .seconds = plugin.subscriber().sampled_seconds});
  }
  std::set<int> in_use;
  for (const train::ActivePlugin& plugin : run.plugins()) in_use.insert(plugin.generation());
  status.generations = plugins::generations() - static_cast<int>(in_use.size());
  status.last_checkpoint = parts_.last_checkpoint().first;
  return status;
}

void Commander::note(const std::string& who, const std::string& what, const std::string& why) const {
  parts_.journal({parts_.run->clock().step, who, what, why, {}});
}

/// With details, which are synced to the disk: not while the loop waits. A client has its answer after that;
/// what is lost with the process before it, nobody was told.
void Commander::note_later(report::JournalEntry entry, const std::shared_ptr<Job>& job) {
  later([this, entry = std::move(entry), job]() mutable {
    if (job) entry.details += config::toml(job->request);
    try {
      parts_.journal(std::move(entry));
    } catch (const Error& error) {
      parts_.warn(std::string("a resume will not repeat the swap: ") + error.what());
    }
  });
}

}  // namespace trainyard::control
