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
#include <cstring>
#include <ctime>
#include <deque>
#include <optional>

#include <trainyard/error.hpp>

#include "core/engine/events/blame.hpp"
#include "core/engine/events/signal_stack.hpp"
#include "core/engine/events/signal_text.hpp"
#include "core/engine/events/where.hpp"
#include "core/plugins/kinds.hpp"
#include "core/plugins/sha256.hpp"

namespace trainyard::report {
namespace {

using events::CallFrame;

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

constexpr int most_frames = 64;

/// What went wrong, and where, in plain pointers that a signal handler may follow.
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
  int frames = 0;
  void* stack[most_frames];
};

pid_t thread_id() {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

/// One of the modules that the addresses of a stack lie in.
struct Module {
  char name[96] = {};
  std::uintptr_t offset = 0;
};

/// Finds modules in /proc/self/maps, with system calls only: dladdr takes a lock.
void find_modules(void* const* stack, int frames, Module* modules) {
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return;
  // A line: "begin-end rights offset device inode   path". Longer ones are cut; their numbers come first.
  char line[512], buffer[4096];
  std::size_t length = 0;
  const auto take = [&] {
    line[length] = '\0';
    const char* at = line;
    const auto hex = [&] {
      std::uintptr_t value = 0;
      for (;; ++at) {
        const int digit = *at >= '0' && *at <= '9'   ? *at - '0'
                          : *at >= 'a' && *at <= 'f' ? *at - 'a' + 10
                                                     : -1;
        if (digit < 0) return value;
        value = value << 4 | static_cast<std::uintptr_t>(digit);
      }
    };
    const std::uintptr_t begin = hex();
    if (*at++ != '-') return;
    const std::uintptr_t end = hex();
    while (*at == ' ') ++at;
    while (*at != ' ' && *at != '\0') ++at;  // rights
    while (*at == ' ') ++at;
    const std::uintptr_t offset = hex();
    const char* path = std::strchr(at, '/');
    if (path == nullptr) return;
    path = std::strrchr(path, '/') + 1;
    for (int i = 0; i < frames; ++i) {
      const auto address = reinterpret_cast<std::uintptr_t>(stack[i]);
      if (address < begin || address >= end) continue;
      std::strncpy(modules[i].name, path, sizeof modules[i].name - 1);
      modules[i].offset = address - begin + offset;
    }
  };
  for (ssize_t got; (got = read(maps, buffer, sizeof buffer)) > 0;)
    for (ssize_t i = 0; i < got; ++i) {
      if (buffer[i] == '\n') {
        take();
        length = 0;
      } else if (length + 1 < sizeof line) {
        line[length++] = buffer[i];
      }
    }
  close(maps);
}

/// All that the handler of a signal needs, made ready before.
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

const ReportedPlugin* find(const Ready& run, const char* slot) {
  const auto* plugins = run.plugins.load();
  if (plugins == nullptr || slot == nullptr) return nullptr;
  for (const ReportedPlugin& each : *plugins)
    if (std::strcmp(each.slot.c_str(), slot) == 0) return &each;
  return nullptr;
}

std::string_view suggestion(const Fault& fault, const ReportedPlugin* plugin) {
  if (fault.slot == nullptr)
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
  Module modules[most_frames];
  find_modules(fault.stack, fault.frames, modules);
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

/// The report as JSON.
void render(const Ready& run, const Fault& fault, SignalText& text) {
  const ReportedPlugin* plugin = find(run, fault.slot);
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
  field("plugin").quoted(fault.plugin);
  field("slot").quoted(fault.slot);
  field("kind").quoted(plugin ? plugin->kind.c_str() : nullptr);
  field("digest").quoted(plugin ? plugin->digest.c_str() : nullptr);
  field("event").quoted(fault.event);
  field("hook").raw(flag(fault.hook));
  field("step").number(fault.step);
  field("thread").quoted(fault.thread);
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

/// The report as the file's content; it shows its name once it is whole. Written again, it only grows.
void put(Ready& run, const SignalText& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = pwrite(run.file, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    done += static_cast<std::size_t>(count);
  }
  fsync(run.file);
  if (!run.written.exchange(true)) rename(run.unfinished.c_str(), run.finished.c_str());
}

/// Where a thread was, from its frame; from the loop's where it was in no plugin of its own. What the loop
/// fired last tells when that was, for all threads.
void locate(const Ready& run, Fault& fault) {
  events::Where found = events::where(events::call_frame);
  if (found.slot == nullptr) found = events::where(*run.loop);
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
  else
    text.raw(fault.signal->name).raw(", ").raw(fault.overflow ? "a stack overflow" : fault.signal->meaning);
  if (fault.slot != nullptr)
    text.raw(", in [").raw(fault.slot).raw("] ").raw(fault.plugin);
  else
    text.raw(", in the host's own code");
  if (fault.event != nullptr) text.raw(fault.hook ? " at " : " after ").raw(fault.event);
  text.raw(", step ").number(fault.step);
  if (std::strcmp(fault.thread, "loop") != 0) text.raw(", on thread ").raw(fault.thread);
  text.raw("; the whole report is in ").raw(run.finished).raw("\n");
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, text.data(), text.size());
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
    static Fault fault;  // off the stack, which may be small
    fault = {};
    fault.cause = hung ? "hang" : "signal";
    fault.signal = hung ? nullptr : signal;
    if (info->si_code > 0) fault.address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    fault.overflow = number == SIGSEGV && SignalStack::overflowed(info->si_addr);
    static char thread_name[32];
    if (!on_loop && prctl(PR_GET_NAME, thread_name) == 0) fault.thread = thread_name;
    locate(*run, fault);
    say(*run, fault);
    if (!run->written) {
      // First without the stack: should walking it fail, this much is on the disk.
      render(*run, fault, report_text);
      put(*run, report_text);
      fault.frames = backtrace(fault.stack, most_frames);
      render(*run, fault, report_text);
      put(*run, report_text);
    }
    if (hung) _exit(static_cast<int>(ExitCode::plugin));
  }
  // On the way out the old action comes back: a fault happens again at the instruction that caused it, a
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
  run.config = plugins::Sha256::of(resolved_toml);
  std::rename(run.finished.c_str(), (directory + "/report-previous.json").c_str());
  run.file = open(run.unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (run.file < 0) throw DataError("cannot open '" + run.unfinished + "': " + std::strerror(errno));
  run.loop = &events::call_frame;
  run.loop_thread = thread_id();
  run.loop_handle = pthread_self();
  void* primed[4];
  backtrace(primed, 4);  // loads the unwinder now: a handler must not
  ready = &run;
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

}  // namespace trainyard::report
