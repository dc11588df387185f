#include "core/engine/swap/commander.hpp"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/engine/distributed/together.hpp"
#include "core/engine/train/guard.hpp"
#include "core/engine/train/time_use.hpp"
#include "core/runfile/swap.hpp"
#include "core/runfile/value_json.hpp"

namespace trainyard::control {
namespace {

constexpr int most_commands = 8;  ///< at one safe point

/// Returns the number of steps in the watch: the most that the swaps ask for; 0 on several ranks.
std::int64_t watch_of(const Entry& entry, train::Run& run) {
  std::int64_t longest = 0;
  if (run.loop().world() != nullptr) return longest;
  for (const config::SwapRequest& swap : entry.swaps)
    if (const std::optional<Duration> length = Duration::parse(swap.watch))
      longest = std::max(longest, length->steps(run.scale()).value_or(0));
  return longest;
}

}  // namespace

Commander::Commander(train::Run& run, Channel* channel, report::RunDirectory& directory, Ledger ledger)
    : run_(run), channel_(channel), directory_(directory), swaps_(run), next_number_(ledger.next) {
  for (Entry& entry : ledger.open) {
    if (entry.step) {
      due_.push_back(std::move(entry));
      continue;
    }
    const auto job = std::make_shared<Job>();
    job->entry = std::move(entry);
    waiting_.push_back(job);
  }
}

void Commander::start(const std::shared_ptr<Job>& job) {
  tasks_.add([this, job] {
    try {
      job->prepared = swaps_.prepare(job->entry.swaps);
      if (job->command && job->prepared->text().empty())
        throw ConfigError(config::text(job->entry.swaps) +
                          ": its slot was left out when the run began, as the plugin is in quarantine: stop "
                          "the run and resume it, which takes a plugin that was mended");
    } catch (
        const std::exception& error) {  // plugins are called within guards, which make Errors of all else
      job->refused = error.what();
    }
    job->done = true;
  });
}

/// Destroys a swap on the other thread: plugins may take their time to end.
void Commander::retire(std::unique_ptr<train::PreparedSwap> swap) {
  if (swap) tasks_.add([gone = std::shared_ptr<train::PreparedSwap>(std::move(swap))] {});
}

void Commander::at_safe_point() {
  const Clock& clock = run_.clock();
  end_watches(clock.step);
  while (!due_.empty() && due_.front().step <= clock.step) make_due();
  const bool alone = run_.loop().world() == nullptr;
  if (alone) {
    finish();
    prepare_next();
  } else if (run_.loop().has_orders()) {
    obey_together();
  }
  answer_checkpoints();
  tasks_.hand_on(current_ != nullptr);
  if (channel_ == nullptr) return;
  if (channel_->pending()) obey();
  while (alone && holds()) {
    finish();
    prepare_next();
    attend();
  }
}

/// Runs in a pause: waits a little for commands, and does what does not change the run.
void Commander::attend() {
  if (channel_->wait(std::chrono::milliseconds(current_ ? 1 : 50))) obey();
  begin_pauses();
  run_.loop().settle_checkpoints();
  answer_checkpoints();
  tasks_.hand_on(current_ != nullptr);
}

/// Begins the requested pauses; on several ranks all have come to the same safe point by then.
void Commander::begin_pauses() {
  for (Command& command : std::exchange(pauses_, {})) {
    if (stopping_) {
      command.refuse("the run was told to stop");
      continue;
    }
    if (!std::exchange(paused_, true))
      directory_.journal({run_.clock().step, std::string(client), "pause", "", {}});
    command.answer({{"message", "paused at step " + std::to_string(run_.clock().step)}});
  }
}

/// Ends watches up to `step`. A swap stays once no other watch can take the run back to before it.
void Commander::end_watches(std::int64_t step) {
  const auto over = [&](const RevertibleSwap& each) { return each.watch && step >= each.watch->until; };
  if (std::none_of(revertible_.begin(), revertible_.end(), over)) return;
  run_.states().check_weights();
  for (RevertibleSwap& each : revertible_)
    if (over(each)) tasks_.add([gone = std::exchange(each.watch, std::nullopt)] {});
  const auto stays = std::find_if(revertible_.begin(), revertible_.end(),
                                  [](const RevertibleSwap& each) { return each.watch.has_value(); });
  for (auto each = revertible_.begin(); each != stays; ++each) retire(std::move(each->swap));
  revertible_.erase(revertible_.begin(), stays);
}

/// Prepares the current swap anew, as the run is about to differ from the one it was prepared for.
void Commander::put_back() {
  if (!current_) return;
  tasks_.wait_for(current_->done, current_ != nullptr);
  retire(std::move(current_->prepared));
  waiting_.push_front(anew(*current_));
  current_.reset();
}

/// Returns the same request, not prepared yet.
std::shared_ptr<Commander::Job> Commander::anew(Job& job) {
  auto again = std::make_shared<Job>();
  again->entry = std::move(job.entry);
  again->command = std::move(job.command);
  return again;
}

void Commander::prepare_next() {
  if (current_ || waiting_.empty()) return;
  current_ = std::move(waiting_.front());
  waiting_.pop_front();
  start(current_);
}

/// Makes the next request whose step has come; the loop waits for it.
void Commander::make_due() {
  if (due_.front().swaps.empty()) {  // a pause: the executor finished what was in flight here
    run_.loop().bench().settle(Executor::Pause::checkpoint);
    stand(std::move(due_.front()));
    return due_.pop_front();
  }
  put_back();
  const auto job = std::make_shared<Job>();
  job->entry = std::move(due_.front());
  due_.pop_front();
  start(job);
  tasks_.wait_for(job->done, current_ != nullptr);
  try {
    commit(*job);
  } catch (...) {  // another rank was lost: the request is due again
    due_.push_front(std::move(job->entry));
    throw;
  }
}

/// Commits the requested swap once it is prepared.
void Commander::finish() {
  if (!current_ || !current_->done) return;
  commit(*std::exchange(current_, nullptr));
}

/// Called on all ranks once they agreed to it: does what rank 0 was asked for, up to the end of a pause. The
/// others wait meanwhile.
void Commander::obey_together() {
  begin_pauses();
  do
    while (holds() && !has_work()) attend();
  while (obey_first());
}

/// Does on all ranks what rank 0 was asked for. Returns true if the run is paused.
bool Commander::obey_first() {
  distributed::World& world = *run_.loop().world();
  Ledger orders{.next = next_number_, .open = {}, .made = {}};
  for (const std::shared_ptr<Job>& job : waiting_) orders.open.push_back(job->entry);
  State own;
  own.scalars["ledger"] = orders.text();
  own.scalars["evaluations"] = std::ssize(evaluations_);
  own.scalars["checkpoint"] = checkpoint_due_;
  own.scalars["paused"] = holds();
  const State first = distributed::from_bytes(world.from_first(distributed::to_bytes({own}))).front();
  std::deque<std::shared_ptr<Job>> jobs = std::exchange(waiting_, {});
  if (world.rank() != 0) {
    jobs.clear();
    orders = Ledger::from_text(StateReader(first).text("ledger"), "rank 0");
    next_number_ = orders.next;
    for (Entry& entry : orders.open) {
      jobs.push_back(std::make_shared<Job>());
      jobs.back()->entry = std::move(entry);
    }
  }
  make(jobs);
  for (std::int64_t left = StateReader(first).integer("evaluations"); left > 0; --left) {
    if (evaluations_.empty()) {
      evaluate(nullptr);
      continue;
    }
    evaluate(&evaluations_.front());
    evaluations_.pop_front();
  }
  if (StateReader(first).boolean("checkpoint")) checkpoint();
  tasks_.hand_on(current_ != nullptr);
  return StateReader(first).boolean("paused");
}

void Commander::checkpoint() {
  note_pause("for a checkpoint that was asked for");
  run_.loop().checkpoint();
  checkpoint_due_ = false;
}

/// Makes the swaps in turn. If another rank is lost meanwhile, rank 0 is asked again for those that are left.
void Commander::make(const std::deque<std::shared_ptr<Job>>& jobs) {
  for (auto job = jobs.begin(); job != jobs.end(); ++job) try {
      start(*job);
      tasks_.wait_for((*job)->done, current_ != nullptr);
      commit(**job);
    } catch (...) {
      if (run_.loop().world()->rank() == 0)
        for (; job != jobs.end(); ++job) waiting_.push_back(anew(**job));
      throw;
    }
}

/// Returns why one of the ranks cannot make a swap; empty if all can. If another rank is lost meanwhile, the
/// run is put back to before the swap, in the middle of a safe point.
std::string Commander::agree_with_others(Job& job, const std::shared_ptr<train::StateCopy>& before,
                                         const std::string& refused) {
  const train::Position position = run_.loop().position();
  try {
    return run_.loop().world()->agree(refused);
  } catch (const DistributedError&) {
    if (before) {
      swaps_.take_back(*job.prepared);
      run_.states().go_back(train::StateCopy(before->states()).states());
      run_.loop().take_position(position);
    }
    retire(std::move(job.prepared));
    throw;
  }
}

/// Puts a prepared swap into the run, or says why it cannot; the run goes on either way. Of several ranks all
/// make it, or none does.
void Commander::commit(Job& job) {
  Entry& entry = job.entry;
  distributed::World* const world = run_.loop().world();
  std::shared_ptr<train::StateCopy> before;
  const std::int64_t watch = watch_of(entry, run_);
  std::string refused = job.refused;
  if (world != nullptr) refused = agree_with_others(job, before, refused);
  if (refused.empty()) {
    try {
      before = swaps_.commit(*job.prepared, watch > 0 || world != nullptr);
    } catch (const std::exception& error) {
      refused = error.what();
    }
    if (world != nullptr) refused = agree_with_others(job, before, refused);
    if (!refused.empty()) note_pause("for a swap that was not made");
  }
  if (!refused.empty()) {
    if (before) {  // another rank could not make it
      swaps_.take_back(*job.prepared);
      run_.states().go_back(train::StateCopy(before->states()).states());
    }
    return refuse(job, refused);
  }
  if (watch == 0) before.reset();
  if (before && !before->settled()) tasks_.add([before] { before->help(); });
  entry.step = run_.clock().step;
  for (const config::SwapRequest& swap : entry.swaps) ++swapped_[swap.slot];
  ++counts_.made;
  const std::string text = job.prepared->text() + ", at step " + std::to_string(*entry.step);
  note_end(entry, swap_made, text);
  if (job.command) {
    std::string message = text;
    if (world != nullptr)
      message += "; several ranks do not go back: what fails from here on ends the run";
    else if (before)
      message += "; watched up to step " + std::to_string(*entry.step + watch) +
                 ": taken back if anything fails by then, which the journal tells";
    tasks_.add([command = std::make_shared<Command>(std::move(*job.command)), message] {  // after the journal
      command->answer({{"message", message}});
    });
  }
  if (!before && revertible_.empty()) return retire(std::move(job.prepared));
  std::optional<Watch> watched;
  if (before) watched.emplace(Watch{std::move(before), *entry.step + watch});
  revertible_.push_back({std::move(entry), std::move(job.prepared), std::move(watched)});
}

/// Tells the client why; a planned swap, for which nobody waits, becomes a warning.
void Commander::refuse(Job& job, const std::string& why) {
  retire(std::move(job.prepared));
  ++counts_.refused;
  const std::string text = config::text(job.entry.swaps) + ": " + why;
  note_end(job.entry, swap_refused, text);
  if (!job.command) return run_.warn(job.entry.who + ": the run goes on without a swap: " + text);
  tasks_.add([command = std::make_shared<Command>(std::move(*job.command)), why] { command->refuse(why); });
}

bool Commander::recover(const Error& error) {
  put_back();  // going back by other means changes the run, too
  if (revertible_.empty()) return false;
  const std::int64_t failed_at = run_.clock().step + 1;
  while (!revertible_.back().watch) {
    RevertibleSwap later_one = std::move(revertible_.back());
    revertible_.pop_back();
    if (later_one.swap) {
      swaps_.take_back(*later_one.swap);
      retire(std::move(later_one.swap));
      --counts_.made;
    }
    for (const config::SwapRequest& swap : later_one.entry.swaps) --swapped_[swap.slot];
    due_.push_front(std::move(later_one.entry));
  }
  RevertibleSwap failed = std::move(revertible_.back());
  revertible_.pop_back();
  swaps_.take_back(*failed.swap);
  // The states are copied: plugins keep what they load, and a checkpoint under way may hold the copy.
  run_.states().go_back(train::StateCopy(failed.watch->before->states()).states());
  for (const config::SwapRequest& swap : failed.entry.swaps) --swapped_[swap.slot];
  --counts_.made;
  ++counts_.rolled_back;
  const std::int64_t step = run_.clock().step;
  const std::string text = failed.swap->text();
  note_end(failed.entry, swap_rolled_back,
           text + ", from step " + std::to_string(failed_at) + " back to step " + std::to_string(step) +
               ": " + error.what());
  run_.warn(text + " is taken back: " + error.what());
  note_pause("for a swap that was taken back");
  retire(std::move(failed.swap));
  if (stopping_) run_.loop().request(Control::stop_run, client, "asked to, before a swap was taken back");
  return true;
}

void Commander::complete(Snapshot& snapshot) {
  write_lines();  // the journal's line must precede a checkpoint that holds a request as settled
  Ledger ledger{.next = next_number_, .open = {}, .made = {}};
  if (current_) ledger.open.push_back(current_->entry);
  for (const std::shared_ptr<Job>& job : waiting_) ledger.open.push_back(job->entry);
  ledger.open.insert(ledger.open.end(), due_.begin(), due_.end());
  for (const RevertibleSwap& each : revertible_) {
    ledger.made.push_back({each.entry, each.watch ? std::optional(each.watch->until) : std::nullopt});
    if (!each.watch) continue;
    for (State state : each.watch->before->states()) {
      state.owner = before_owner(each.entry.number, state.owner);
      snapshot.fixed.push_back(std::move(state));
    }
  }
  State state{.owner = ledger_owner, .version = {}, .scalars = {{"text", ledger.text()}}, .tensors = {}};
  snapshot.states.push_back(std::move(state));
}

void Commander::go_on_with(std::vector<MadeBefore> made) {
  for (MadeBefore& each : made) {
    Entry& entry = each.made.entry;
    if (entry.swaps.empty()) {
      stand(std::move(entry));
      continue;
    }
    std::vector<config::SwapRequest> swaps = entry.swaps;
    for (config::SwapRequest& swap : swaps) swap.carry = config::Carry::fresh;  // all state is restored later
    std::unique_ptr<train::PreparedSwap> swap = swaps_.prepare(swaps);
    swaps_.commit(*swap);
    std::optional<Watch> watch;
    if (each.made.until)
      watch.emplace(Watch{std::make_shared<train::StateCopy>(std::move(each.before)), *each.made.until});
    for (const config::SwapRequest& each_swap : entry.swaps) ++swapped_[each_swap.slot];
    ++counts_.made;
    revertible_.push_back({std::move(entry), std::move(swap), std::move(watch)});
  }
}

void Commander::obey() {
  for (int i = 0; i < most_commands; ++i) {
    std::optional<Command> command = channel_->take();
    if (!command) return;
    obey(std::move(*command));
  }
}

void Commander::obey(Command command) {
  train::Loop& loop = run_.loop();
  const Request& request = command.request();
  const auto say = [&](const std::string& message) { command.answer({{"message", message}}); };
  const auto note = [&](const char* what) {
    directory_.journal({run_.clock().step, std::string(client), what, "", {}});
  };
  const std::string here = "at step " + std::to_string(run_.clock().step);
  try {
    switch (request.verb) {
      case Verb::status: command.answer(Json(status())); return;
      case Verb::set:
        add(std::string(client), config::swaps_of(run_.config().resolved, request.assignments))
            .command.emplace(std::move(command));
        return;
      case Verb::add:
      case Verb::remove:
      case Verb::swap: {
        config::SwapRequest swap{.slot = request.slot, .type = request.type, .options = {}};
        for (const std::string& assignment : request.assignments) config::assign(swap.options, assignment);
        if (!request.carry.empty()) swap.carry = config::carry_of(request.carry);
        if (request.watch) swap.watch = request.watch->text();
        if (request.verb != Verb::swap) swap.change = name(request.verb);
        add(std::string(client), {std::move(swap)}).command.emplace(std::move(command));
        return;
      }
      case Verb::pause:
        pauses_.push_back(std::move(command));
        if (loop.world() == nullptr) begin_pauses();
        return;
      case Verb::resume:
        if (paused_) note("resume");
        say(paused_ ? "goes on " + here : "was not paused");
        paused_ = false;
        return;
      case Verb::checkpoint:
        checkpoints_.push_back({std::move(command), run_.clock().step});
        checkpoint_due_ = true;
        if (loop.world() == nullptr) checkpoint();
        return answer_checkpoints();
      case Verb::eval:
        if (loop.evaluations().empty())
          return command.refuse("the run has neither [data.val] nor [data.test]");
        if (loop.world() != nullptr) return evaluations_.push_back(std::move(command));
        evaluate(&command);
        return;
      case Verb::stop:
        paused_ = false;
        stopping_ = true;
        loop.request(Control::stop_run, client, "asked to");
        say("stops " + here);
        return;
    }
  } catch (const Error& error) {
    command.refuse(error.what());
  }
}

Commander::Job& Commander::add(std::string who, std::vector<config::SwapRequest> swaps) {
  waiting_.push_back(std::make_shared<Job>());
  Job& job = *waiting_.back();
  job.entry = {.number = next_number_++, .who = std::move(who), .step = {}, .swaps = std::move(swaps)};
  return job;
}

/// Evaluates without a trace: whatever hooks and schedules do meanwhile is undone, and no sink gets a record.
/// `command` is null on a rank that nobody asked.
void Commander::evaluate(Command* command) {
  train::Loop& loop = run_.loop();
  put_back();
  loop.bench().settle(Executor::Pause::checkpoint);
  note_pause("for an evaluation that was asked for");
  train::StateCopy before(run_.states().snapshot().states);
  std::map<std::string, double, std::less<>> seen;
  try {
    seen = loop.evaluate_silently(loop.evaluations().front());
  } catch (const Error& error) {
    run_.states().go_back(before.states());
    if (command != nullptr) command->refuse(error.what());
    return;
  }
  run_.states().go_back(before.states());
  if (command == nullptr) return;
  if (seen.empty()) return command->refuse("the run was told to end while it evaluated");
  Json values = Json::object();
  std::string message = "evaluated at step " + std::to_string(run_.clock().step);
  for (const auto& [name, value] : seen) {
    values[name] = config::json_of(value);
    message += "\n  " + name + "  " + std::to_string(value);
  }
  command->answer({{"message", message}, {"metrics", std::move(values)}});
}

void Commander::answer_checkpoints() {
  if (checkpoints_.empty()) return;
  const auto& [path, step] = run_.loop().last_checkpoint();
  while (!checkpoints_.empty() && checkpoints_.front().step <= step) {
    checkpoints_.front().command.answer({{"message", "saved in " + path}, {"path", path}});
    checkpoints_.pop_front();
  }
}

Status Commander::status() const {
  train::Loop& loop = run_.loop();
  const Clock& clock = run_.clock();
  Status status;
  status.run = run_.config().run.name;
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
  train::TimeUse use = train::time_use(run_);
  status.time = std::move(use.phases);
  auto of_plugin = use.plugins.begin();
  for (train::ActivePlugin& plugin : run_.plugins()) {
    const auto swaps = swapped_.find(plugin.slot().address());
    status.slots.push_back({.slot = plugin.slot().address(),
                            .type = plugin.slot().type,
                            .version = plugin.manifest().version,
                            .swaps = swaps == swapped_.end() ? 0 : swaps->second,
                            .digest = plugin.file().digest,
                            .seconds = (of_plugin++)->seconds});
  }
  std::set<int> in_use;
  for (const train::ActivePlugin& plugin : run_.plugins()) in_use.insert(plugin.generation());
  status.retired = plugins::generations() - static_cast<int>(in_use.size());
  status.last_checkpoint = loop.last_checkpoint().path;
  return status;
}

/// Notes the end of a request for the journal, which is synced without the loop waiting. A client is answered
/// after that, so what is lost with the process before it was told to nobody.
void Commander::note_end(const Entry& of, std::string_view what, std::string why) {
  {
    const std::lock_guard lock(lines_mutex_);
    lines_.push_back({{run_.clock().step, of.who, std::string(what), std::move(why), {}}, of});
  }
  tasks_.add([this] { write_lines(); });
}

/// Notes a pause, and has it in the journal before the run goes on: what an executor finishes may change the
/// run's bits, so a resume pauses here, too.
void Commander::note_pause(std::string why) {
  Entry entry{.number = next_number_++, .who = "host", .step = run_.clock().step, .swaps = {}};
  note_end(entry, paused, std::move(why));
  write_lines();
  stand(std::move(entry));
}

/// Keeps a pause that falls within a watch: it is repeated if the run goes back to before it.
void Commander::stand(Entry pause) {
  if (!revertible_.empty()) revertible_.push_back({std::move(pause), nullptr, std::nullopt});
}

/// Writes the noted lines to the journal. Any thread.
void Commander::write_lines() {
  const std::lock_guard lock(lines_mutex_);
  for (; !lines_.empty(); lines_.pop_front()) {
    auto& [line, of] = lines_.front();
    line.details = details(of);
    try {
      directory_.journal(line);
    } catch (const Error& error) {
      run_.warn(std::string("a resume will not repeat the swap: ") + error.what());
    }
  }
}

}  // namespace trainyard::control
