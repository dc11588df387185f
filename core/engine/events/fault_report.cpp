#include "core/engine/events/fault_report.hpp"

#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <exception>
#include <optional>

#include <trainyard/error.hpp>

#include "core/engine/events/blame.hpp"
#include "core/engine/events/modules.hpp"
#include "core/engine/events/signal_stack.hpp"
#include "core/engine/events/signal_text.hpp"
#include "core/engine/events/where.hpp"
#include "core/plugins/kinds.hpp"
#include "lib/sha256.hpp"

namespace trainyard::report {
namespace {

using events::CallFrame;
using events::Where;

struct FatalSignal {
  int number;
  const char* name;
  const char* meaning;
  struct sigaction before {};
};
FatalSignal fatal_signals[] = {{SIGSEGV, "SIGSEGV", "a bad memory access"},
                               {SIGBUS, "SIGBUS", "a bad memory access"},
                               {SIGFPE, "SIGFPE", "an arithmetic error, such as a division of integers by 0"},
                               {SIGILL, "SIGILL", "an instruction that this processor does not have"},
                               {SIGABRT, "SIGABRT", "an abort"}};

/// The signals by which a training is told to end; the second one is reported.
const FatalSignal ending_signals[] = {{SIGINT, "SIGINT", "a second signal to end"},
                                      {SIGTERM, "SIGTERM", "a second signal to end"},
                                      {SIGUSR1, "SIGUSR1", "a second signal to end"}};

constexpr int most_frames = 64;

/// The failure and its place, in plain pointers that a signal handler may follow.
struct Fault {
  const char* cause = "error";
  const char* error = nullptr;
  const FatalSignal* signal = nullptr;
  std::optional<std::uintptr_t> address;
  bool overflow = false;
  const char *slot = nullptr, *plugin = nullptr;
  const char* event = nullptr;
  bool hook = false;
  std::int64_t step = 0;
  const char* thread = "loop";
  bool own_thread = false;
  std::optional<pid_t> sender;  ///< sender of a signal from outside; 0: in another container
  int frames = 0;
  void* stack[most_frames];
  Module modules[most_frames];
};

/// The message of an uncaught exception, for the handler of the abort that follows.
struct Uncaught {
  std::atomic<pid_t> thread{0};
  char text[1024] = {};
} uncaught;
std::terminate_handler terminate_before = nullptr;

pid_t thread_id() {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

/// All that the handler of a signal needs, prepared in advance.
struct Ready {
  int file = -1;
  std::string unfinished, finished;  // paths
  std::string config;
  std::atomic<const std::vector<ReportedPlugin>*> plugins{nullptr};
  const CallFrame* loop = nullptr;
  pid_t loop_thread = 0;
  pthread_t loop_handle{};
  std::atomic<bool> hung{false};
  std::atomic<bool> written{false};
};
std::atomic<Ready*> ready{nullptr};
std::atomic<pid_t> reporting{0};  // the thread that writes
SignalText report_text, message_text;

/// A thread of a plugin has the place that it began in, where another one of its list may be since.
const ReportedPlugin* find(const Ready& run, const char* slot, const char* plugin) {
  const auto* plugins = run.plugins.load();
  if (plugins == nullptr || slot == nullptr || plugin == nullptr) return nullptr;
  for (const ReportedPlugin& each : *plugins)
    if (each.slot == slot && each.plugin == plugin) return &each;
  return nullptr;
}

std::string_view suggestion(const Fault& fault, const ReportedPlugin* plugin) {
  if (fault.sender)
    return "another process sent this signal, so that no plugin is to blame; the run can go on from its last "
           "checkpoint";
  if (fault.own_thread)
    return "the plugin began this thread by itself, where nobody catches what goes wrong: begin it with "
           "host().thread, which reports an exception as the plugin's error at the next step, and joins the "
           "thread "
           "at the end";
  if (std::strcmp(fault.cause, "exit") == 0)
    return "a plugin must not end the process: throw trainyard::ConfigError, DataError or PluginError with "
           "what is "
           "wrong, or ask for Control::stop_run; the run can go on from its last checkpoint";
  if (fault.plugin == nullptr)
    return fault.signal != nullptr
               ? "the host itself failed, or a library that it called outside of any plugin: please report "
                 "this file; with `trainyard train --supervise` the run would go on from its last checkpoint"
               : "the message says what to mend; the run can go on from its last checkpoint";
  if (std::strcmp(fault.cause, "hang") == 0)
    return "find out what the call waits for (its stack is below), give it more time by guard.deadline, or "
           "take the plugin out of the run file";
  const bool optional = plugin != nullptr && plugins::can_be_left_out(plugin->kind);
  if (fault.overflow)
    return "the plugin used up the stack of its thread: look for a recursion without an end, or large local "
           "arrays";
  return optional ? "mend the plugin, or take it out of the run file; `trainyard train --supervise` goes on "
                    "from the last checkpoint without it"
                  : "mend the plugin, or take another one for its slot; the run can go on from its last "
                    "checkpoint";
}

SignalText& begin_field(SignalText& text, const char* name) {
  return text.raw(",\n  ").quoted(name).raw(": ");
}

// Lists leave room for the end of the text.
void render_hooks(const events::Bus* bus, const char* event, SignalText& text) {
  begin_field(text, "hooks").raw("[");
  int listed = 0;
  if (bus != nullptr && event != nullptr)
    for (std::size_t e = 0; e < event_count; ++e)
      if (event_names[e] == event)
        bus->each_hook(static_cast<Event>(e), [&](const char* id) {
          if (text.room() > std::size_t{64} * 1024) text.raw(listed++ > 0 ? ", " : "").quoted(id, 256);
        });
  text.raw("]");
}

void render_events(const events::Bus* bus, SignalText& text) {
  begin_field(text, "events").raw("[");
  for (std::uint32_t age = bus != nullptr ? bus->trail().size() : 0; age-- > 0;) {
    const events::Trail::Entry entry = bus->trail().back(age);
    const auto event = static_cast<std::size_t>(entry.event);
    if (event >= event_count) continue;
    text.raw("\n    {\"event\": ").quoted(event_names[event]).raw(", \"step\": ").number(entry.step);
    text.raw(age > 0 ? "}," : "}\n  ");
  }
  text.raw("]");
}

void render_stack(const Fault& fault, SignalText& text) {
  begin_field(text, "stack").raw("[");
  const Module* const modules = fault.modules;
  for (int i = 0; i < fault.frames; ++i) {
    text.raw(i > 0 ? ",\n    " : "\n    ");
    text.raw("{\"address\": \"")
        .hex(reinterpret_cast<std::uintptr_t>(fault.stack[i]))
        .raw("\", \"module\": ");
    text.quoted(modules[i].name[0] != '\0' ? modules[i].name : nullptr).raw(", \"offset\": \"");
    text.hex(modules[i].offset).raw("\"}");
  }
  text.raw("]");
}

/// Writes the report as JSON.
void render(const Ready& run, const Fault& fault, SignalText& text) {
  const ReportedPlugin* plugin = find(run, fault.slot, fault.plugin);
  const auto field = [&](const char* name) -> SignalText& { return begin_field(text, name); };
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  text.clear();
  text.raw("{\n  \"cause\": ").quoted(fault.cause);
  field("error").quoted(fault.error);
  field("signal").quoted(fault.signal ? fault.signal->name : nullptr);
  if (fault.address)
    field("address").raw("\"").hex(*fault.address).raw("\"");
  else
    field("address").raw("null");
  field("stack_overflow").raw(flag(fault.overflow));
  if (fault.sender)
    field("sender").number(*fault.sender);
  else
    field("sender").raw("null");
  field("plugin").quoted(fault.plugin);
  field("slot").quoted(fault.slot);
  field("kind").quoted(plugin ? plugin->kind.c_str() : nullptr);
  field("digest").quoted(plugin ? plugin->digest.c_str() : nullptr);
  field("event").quoted(fault.event);
  field("hook").raw(flag(fault.hook));
  field("step").number(fault.step);
  field("thread").quoted(fault.thread);
  field("own_thread").raw(flag(fault.own_thread));
  field("pid").number(getpid());
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  field("time").number(now.tv_sec);
  field("config").quoted(run.config.c_str());
  field("suggestion").quoted(suggestion(fault, plugin));
  const events::Bus* bus = run.loop->bus.load();
  render_hooks(bus, fault.event, text);
  render_events(bus, text);
  render_stack(fault, text);
  text.raw("\n}\n");
}

/// Writes the report to the file, which gets its name once it is complete.
void put(Ready& run, const SignalText& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = pwrite(run.file, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    done += static_cast<std::size_t>(count);
  }
  if (ftruncate(run.file, static_cast<off_t>(done)) != 0) return;
  fsync(run.file);
  if (!run.written.exchange(true)) rename(run.unfinished.c_str(), run.finished.c_str());
}

/// Returns true for a file that the loader made of a plugin's code: FILE-DIGEST-GENERATION.so (16 digits).
bool is_code_of(const ReportedPlugin& plugin, const char* module) {
  constexpr std::ptrdiff_t digits = 16;
  const char* const generation = std::strrchr(module, '-');
  return generation != nullptr && generation - module > digits &&
         std::strncmp(generation - digits, plugin.digest.c_str(), digits) == 0;
}

/// Finds the plugin with the outermost code on a stack: it began what the thread does. Where the run uses
/// several plugins of that file, a pack, it may be any of them: the slot is null, the plugin the file.
Where on_stack(const Ready& run, const Module* modules, int frames) {
  const auto* plugins = run.plugins.load();
  const ReportedPlugin* found = nullptr;
  for (int i = frames; plugins != nullptr && found == nullptr && i-- > 0;)
    for (const ReportedPlugin& each : *plugins) {
      if (!is_code_of(each, modules[i].name)) continue;
      if (found != nullptr && (found->plugin != each.plugin || found->kind != each.kind))
        return {.slot = nullptr, .plugin = each.file.c_str()};
      if (found == nullptr) found = &each;
    }
  return found == nullptr ? Where{} : Where{.slot = found->slot.c_str(), .plugin = found->plugin.c_str()};
}

void walk(Fault& fault) {
  fault.frames = backtrace(fault.stack, most_frames);
  find_modules(fault.stack, fault.frames, fault.modules);
}

/// Finds the plugin that the calling thread was in: by its frame, by its stack if that was walked, by the
/// loop's frame. The time, for all threads, is the event that the loop fired last.
void locate(const Ready& run, Fault& fault) {
  Where found = events::where(events::call_frame);
  if (found.slot == nullptr) {
    found = on_stack(run, fault.modules, fault.frames);
    fault.own_thread = found.plugin != nullptr && thread_id() != run.loop_thread;
  }
  if (found.plugin == nullptr) found = events::where(*run.loop);
  if (fault.sender) found = {};
  fault.own_thread = fault.own_thread && !fault.sender;
  fault.slot = found.slot;
  fault.plugin = found.plugin;
  fault.hook = found.hook;
  if (const auto newest = events::newest_event(*run.loop)) {
    fault.event = name(newest->event).data();
    fault.step = newest->step;
  }
}

void say(const Ready& run, const Fault& fault) {
  SignalText& text = message_text;
  text.clear();
  text.raw("trainyard: ");
  if (std::strcmp(fault.cause, "hang") == 0)
    text.raw("a call does not return");
  else if (fault.signal == nullptr)
    text.raw(fault.error).raw(", which ends the run");
  else if (fault.sender)
    text.raw(fault.signal->name).raw(", sent by process ").number(*fault.sender);
  else
    text.raw(fault.signal->name).raw(", ").raw(fault.overflow ? "a stack overflow" : fault.signal->meaning);
  if (fault.signal != nullptr && fault.error != nullptr) text.raw(" (").raw(fault.error).raw(")");
  if (fault.slot != nullptr)
    text.raw(", in [").raw(fault.slot).raw("] ").raw(fault.plugin);
  else if (fault.plugin != nullptr)
    text.raw(", in one of the plugins of ").raw(fault.plugin);
  else if (!fault.sender)
    text.raw(", in the host's own code");
  if (fault.event != nullptr) text.raw(fault.hook ? " at " : " after ").raw(fault.event);
  text.raw(", step ").number(fault.step);
  if (std::strcmp(fault.thread, "loop") != 0) text.raw(", on thread ").raw(fault.thread);
  if (fault.own_thread) text.raw(" that it began by itself (begin it with host().thread)");
  text.raw("; the whole report is in ").raw(run.finished).raw("\n");
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, text.data(), text.size());
}

/// Writes the report without the stack first: should walking the stack fail, this much is on the disk.
void report(Ready& run, Fault& fault) {
  locate(run, fault);
  render(run, fault, report_text);
  put(run, report_text);
  walk(fault);
  locate(run, fault);
  render(run, fault, report_text);
  put(run, report_text);
}

void name_thread(const Ready& run, Fault& fault) {
  static char name[32];
  if (thread_id() != run.loop_thread && prctl(PR_GET_NAME, name) == 0) fault.thread = name;
}

/// Keeps the message of an uncaught exception; the abort that follows is reported.
void on_terminate() {
  if (const std::exception_ptr error = std::current_exception(); error && uncaught.thread == 0) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& thrown) {
      std::strncpy(uncaught.text, thrown.what(), sizeof uncaught.text - 1);
    } catch (...) {
      std::strncpy(uncaught.text, "threw something that is no std::exception", sizeof uncaught.text - 1);
    }
    uncaught.thread = thread_id();
  }
  if (terminate_before != nullptr) terminate_before();
  std::abort();
}

void give_back(FatalSignal& signal) {
  sigaction(signal.number, &signal.before, nullptr);
}

void on_fatal_signal(int number, siginfo_t* info, void*) {
  const int error = errno;
  FatalSignal* signal = fatal_signals;
  while (signal->number != number) ++signal;
  Ready* const run = ready.load();
  const pid_t self = thread_id();
  pid_t nobody = 0;
  const bool mine = reporting.compare_exchange_strong(nobody, self);
  if (!mine && nobody != self)
    for (;;) pause();  // another thread writes the report and ends the process
  const bool on_loop = run != nullptr && self == run->loop_thread;
  const bool hung = on_loop && number == SIGABRT && run->hung.load();
  if (mine && run != nullptr) {
    static Fault fault;  // not on the stack, which may be small
    fault = {};
    fault.cause = hung ? "hang" : "signal";
    fault.signal = hung ? nullptr : signal;
    if (info->si_code > 0) fault.address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    fault.overflow = number == SIGSEGV && SignalStack::overflowed(info->si_addr);
    if (info->si_code <= 0 && info->si_pid != getpid()) fault.sender = info->si_pid;
    if (number == SIGABRT && uncaught.thread == self) fault.error = uncaught.text;
    name_thread(*run, fault);
    if (!run->written)
      report(*run, fault);
    else
      locate(*run, fault);
    say(*run, fault);
    if (hung) _exit(static_cast<int>(ExitCode::plugin));
  }
  // The old action is put back on the way out: a fault happens again at the instruction that caused it, a
  // signal that was sent is sent again.
  give_back(*signal);
  if (info->si_code <= 0) syscall(SYS_tgkill, getpid(), self, number);
  errno = error;
}

}  // namespace

constexpr std::size_t lists_kept = 8;

struct FaultReport::Files {
  Ready ready;
  SignalStack stack;
  std::deque<std::unique_ptr<const std::vector<ReportedPlugin>>>
      plugins;  // the newest, and a few old ones: a handler may read them
};

FaultReport::FaultReport(const std::string& directory, std::string_view resolved_toml)
    : files_(std::make_unique<Files>()) {
  Ready& run = files_->ready;
  run.finished = directory + "/report.json";
  run.unfinished = run.finished + ".tmp";
  run.config = lib::Sha256::of(resolved_toml);
  std::rename(run.finished.c_str(), (directory + "/report-previous.json").c_str());
  run.file = open(run.unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (run.file < 0) throw DataError("cannot open '" + run.unfinished + "': " + std::strerror(errno));
  run.loop = &events::call_frame;
  run.loop_thread = thread_id();
  run.loop_handle = pthread_self();
  void* primed[4];
  backtrace(primed, 4);  // loads the unwinder now: a handler must not
  ready = &run;
  uncaught.thread = 0;
  terminate_before = std::set_terminate(on_terminate);
  for (FatalSignal& signal : fatal_signals) {
    struct sigaction action {};
    action.sa_sigaction = on_fatal_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(signal.number, &action, &signal.before);
  }
}

FaultReport::~FaultReport() {
  for (FatalSignal& signal : fatal_signals) give_back(signal);
  std::set_terminate(terminate_before);
  ready = nullptr;
  Ready& run = files_->ready;
  close(run.file);
  if (!run.written) unlink(run.unfinished.c_str());
}

void FaultReport::set_plugins(std::vector<ReportedPlugin> plugins) {
  files_->plugins.push_back(std::make_unique<const std::vector<ReportedPlugin>>(std::move(plugins)));
  files_->ready.plugins = files_->plugins.back().get();
  if (files_->plugins.size() > lists_kept) files_->plugins.pop_front();
}

void FaultReport::write(const std::exception& error) {
  Ready& run = files_->ready;
  pid_t nobody = 0;
  if (run.written || !reporting.compare_exchange_strong(nobody, thread_id())) return;
  Fault fault;
  const std::string message = error.what();
  fault.error = message.c_str();
  if (const auto* blamed = dynamic_cast<const events::BlamedError*>(&error)) {
    const events::Blame& blame = blamed->blame();
    fault.slot = blame.slot.c_str();
    fault.plugin = blame.plugin.c_str();
    fault.hook = blame.hook;
    fault.step = blame.step;
    if (blame.event) fault.event = name(*blame.event).data();
  } else {
    locate(run, fault);
  }
  render(run, fault, report_text);
  put(run, report_text);
  reporting = 0;
}

void FaultReport::end_hung() {
  Ready& run = files_->ready;
  run.hung = true;
  pthread_kill(run.loop_handle, SIGABRT);
  // The handler ends the process. A thread that takes no signals is reported from here, without its stack.
  sleep(5);
  pid_t nobody = 0;
  if (!run.written && reporting.compare_exchange_strong(nobody, thread_id())) {
    static Fault fault;
    fault.cause = "hang";
    locate(run, fault);
    say(run, fault);
    render(run, fault, report_text);
    put(run, report_text);
  }
  _exit(static_cast<int>(ExitCode::plugin));
}

bool FaultReport::report_exit(int status) {
  Ready* const run = ready.load();
  if (run == nullptr) return false;
  pid_t nobody = 0;
  if (!reporting.compare_exchange_strong(nobody, thread_id())) {
    if (nobody == thread_id()) return false;
    for (;;) pause();  // another thread writes the report and ends the process
  }
  static Fault fault;
  const std::string what = "exit(" + std::to_string(status) + ") was called";
  fault.cause = "exit";
  fault.error = what.c_str();
  name_thread(*run, fault);
  if (!run->written) report(*run, fault);
  say(*run, fault);
  return true;
}

void FaultReport::report_ending(int number) {
  Ready* const run = ready.load();
  pid_t nobody = 0;
  if (run == nullptr || run->written || !reporting.compare_exchange_strong(nobody, thread_id())) return;
  static Fault fault;
  fault.cause = "signal";
  for (const FatalSignal& each : ending_signals)
    if (each.number == number) fault.signal = &each;
  report(*run, fault);
  say(*run, fault);
}

std::string FaultReport::whose_thread() {
  const Ready* const run = ready.load();
  if (run == nullptr) return {};
  void* stack[most_frames];
  Module modules[most_frames];
  const int frames = backtrace(stack, most_frames);
  find_modules(stack, frames, modules);
  const char* const plugin = on_stack(*run, modules, frames).plugin;
  return plugin != nullptr ? plugin : "";
}

}  // namespace trainyard::report
