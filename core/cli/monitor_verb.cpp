#include "core/cli/monitor_verb.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <sstream>

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <trainyard/error.hpp>

#include "core/cli/columns.hpp"
#include "core/cli/follow.hpp"

namespace trainyard::cli {
namespace {

using control::Json;

constexpr std::size_t journal_lines = 5;
constexpr std::size_t curve_rows = 12, least_rows = 6;
constexpr timespec tick{.tv_sec = 0, .tv_nsec = 500'000'000};
constexpr std::chrono::milliseconds patience(300);

/// At most so many characters of UTF-8 text; all that is printed here is one column wide.
std::string cut(const std::string& text, std::size_t columns) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80 && ++count > columns) return text.substr(0, i);
  return text;
}

void add_lines(const std::string& text, std::vector<std::string>& lines) {
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
}

int share(const RunState& run) {
  const double percent = 100.0 * static_cast<double>(run.steps) / static_cast<double>(run.total_steps);
  return static_cast<int>(std::clamp(percent, 0.0, 100.0));
}

std::string head(const View& view) {
  const RunState& run = view.run;
  std::string text = printable(run.status ? run.status->run : run.path) + "  ";
  text += run.status ? name(run.status->state) : name(run.life);
  text += "  step " + std::to_string(run.steps);
  if (run.total_steps > 0)
    text += " of " + std::to_string(run.total_steps) + " (" + std::to_string(share(run)) + "%)";
  if (run.status) text += "  epoch " + std::to_string(run.status->epoch);
  const double rate = run.status ? run.status->samples_per_second : view.samples_per_second;
  if (rate > 0) text += "  " + rate_text(rate) + " samples/s";
  if (run.status && run.status->seconds_left) text += "  " + span_text(*run.status->seconds_left) + " left";
  return text;
}

/// Losses and metrics, several to a line: those of the validation first.
std::vector<std::string> metric_lines(const RunState& run, std::size_t columns) {
  std::vector<std::string> lines;
  for (const char* prefix : {"val/", "test/", "train/", "lr"})
    for (const auto& [key, value] : run.metrics) {
      if (!key.starts_with(prefix)) continue;
      const std::string text = printable(key) + " " + number_text(value);
      if (lines.empty() || lines.back().size() + 2 + text.size() > columns)
        lines.push_back(text);
      else
        lines.back() += "  " + text;
    }
  return lines;
}

/// Of the run itself while it is going, else of its result.json.
std::vector<std::vector<std::string>> plugin_rows(const RunState& run) {
  std::vector<std::vector<std::string>> rows;
  if (run.status) {
    rows = {{"slot", "plugin", "version", "swaps", "seconds"}};
    for (const control::Status::Slot& slot : run.status->slots)
      rows.push_back({printable(slot.slot), printable(slot.type), printable(slot.version),
                      std::to_string(slot.swaps), seconds_text(slot.seconds)});
  } else if (run.result.is_object() && run.result.contains("plugins") && run.result["plugins"].is_array()) {
    rows = {{"kind", "plugin", "version", "seconds"}};
    for (const Json& plugin : run.result["plugins"]) {
      if (!plugin.is_object()) continue;
      const auto text = [&](const char* key) {
        const Json value = plugin.value(key, Json());
        return value.is_string() ? printable(value.get<std::string>()) : std::string();
      };
      const std::optional<double> seconds = control::number(plugin.value("seconds", Json()));
      rows.push_back({text("kind"), text("name"), text("version"), seconds ? seconds_text(*seconds) : ""});
    }
  }
  return rows;
}

/// Reads what a run writes, as it grows.
class Watch {
 public:
  explicit Watch(const std::string& path)
      : metrics_(path + "/metrics.jsonl"), journal_(path + "/journal.jsonl") {
    view_.run.path = path;
  }

  const View& look() {
    RunState run = life_of(view_.run.path, patience);  // before the files: what it wrote at its end is there
    run.steps = view_.run.steps;
    run.metrics = std::move(view_.run.metrics);
    view_.run = std::move(run);
    LineFollower::News news = metrics_.take();
    if (news.restarted) {
      view_.loss.clear();
      view_.run.metrics.clear();
    }
    for (const std::string& line : news.lines) take(object_in(line));
    take_report(view_.run);
    news = journal_.take();
    if (news.restarted) view_.journal.clear();
    for (const std::string& line : news.lines)
      if (std::string text = journal_text(line); !text.empty()) view_.journal.push_back(std::move(text));
    if (view_.journal.size() > journal_lines)
      view_.journal.erase(view_.journal.begin(), view_.journal.end() - journal_lines);
    return view_;
  }

 private:
  void take(const Json& record) {
    if (!record.is_object()) return;
    take_record(record, view_.run);
    const Json values = record.value("values", Json());
    if (record.value("what", Json()) != "train" || !values.is_object()) return;
    if (const auto loss = control::number(values.value("train/loss", Json())))
      view_.loss.add(view_.run.steps, *loss);
    if (const auto rate = control::number(values.value("samples_per_second", Json())))
      view_.samples_per_second = *rate;
  }

  View view_;
  LineFollower metrics_, journal_;
};

std::atomic<int> caught{0};
static_assert(std::atomic<int>::is_always_lock_free);

/// The terminal while a frame stands on it: another screen, no cursor, keys without Enter; as before when it
/// ends. Signals come only in wait().
class Terminal {
 public:
  Terminal() {
    sigset_t held;
    sigemptyset(&held);
    struct sigaction action {};
    action.sa_handler = [](int number) {
      if (number != SIGWINCH) caught = number;
    };
    for (std::size_t i = 0; i < signals.size(); ++i) {
      sigaddset(&held, signals[i]);
      sigaction(signals[i], &action, &actions_[i]);
    }
    sigprocmask(SIG_BLOCK, &held, &mask_);
    keys_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
    enter();
  }
  ~Terminal() {
    leave();
    for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &actions_[i], nullptr);
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  static winsize size() {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
      size = {.ws_row = 24, .ws_col = 80};
    return size;
  }

  /// False where the terminal is gone.
  static bool write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }

  /// Until the next tick, a key or a signal. True: the user wants to leave.
  bool wait() {
    pollfd key{keys_ ? STDIN_FILENO : -1, POLLIN, 0};
    if (::ppoll(&key, 1, &tick, &mask_) > 0) {
      char pressed = 0;
      if (::read(STDIN_FILENO, &pressed, 1) <= 0) keys_ = false;
      return pressed == 'q' || pressed == 'Q';
    }
    if (caught != SIGTSTP) return caught != 0;
    caught = 0;
    leave();
    ::kill(::getpid(), SIGSTOP);
    enter();
    return false;
  }

 private:
  static constexpr std::array signals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};

  void enter() {
    if (keys_) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    write("\x1b[?1049h\x1b[?25l");
  }
  void leave() const {
    write("\x1b[?25h\x1b[?1049l");
    if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }

  std::array<struct sigaction, signals.size()> actions_{};
  sigset_t mask_{};
  termios before_{};
  bool keys_ = false;
};

void print(const View& view, std::size_t columns, bool unicode) {
  std::string text;
  for (const std::string& line : frame(view, columns, 40, unicode)) text += line + "\n";
  Terminal::write(text);
}

int follow(Watch& watch, bool unicode) {
  {
    Terminal terminal;
    for (;;) {
      const View& view = watch.look();
      if (!going(view.run.life)) break;
      const winsize size = Terminal::size();
      std::string text = "\x1b[H";
      const auto lines = frame(view, size.ws_col, size.ws_row, unicode);
      for (std::size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "" : "\r\n") + lines[i] + "\x1b[K";
      if (!Terminal::write(text + "\x1b[J")) return 1;
      if (terminal.wait()) return caught == 0 ? 0 : 128 + caught;
    }
  }
  print(watch.look(), Terminal::size().ws_col, unicode);  // it ended: what remains on the screen
  return 0;
}

}  // namespace

std::vector<std::string> frame(const View& view, std::size_t columns, std::size_t rows, bool unicode) {
  std::vector<std::string> below;
  if (const auto table = plugin_rows(view.run); table.size() > 1) {
    std::ostringstream text;
    print_columns(table, "", text);
    below.emplace_back();
    add_lines(text.str(), below);
  }
  if (view.run.status && view.run.status->retired > 0)
    below.push_back(std::to_string(view.run.status->retired) + " retired plugins stay in memory");
  if (!view.journal.empty()) below.insert(below.end(), {"", "journal"});
  for (const std::string& line : view.journal) below.push_back("  " + line);
  if (!going(view.run.life)) below.insert(below.end(), {"", how_it_ended(view.run)});

  std::vector<std::string> lines = {head(view)};
  for (std::string& line : metric_lines(view.run, columns)) lines.push_back(std::move(line));
  const std::size_t taken = lines.size() + below.size();
  const std::size_t free = taken + least_rows < rows ? rows - taken : least_rows;
  for (std::string& line : draw(view.loss, columns, std::min(free, curve_rows), unicode))
    lines.push_back(std::move(line));
  lines.insert(lines.end(), below.begin(), below.end());
  if (lines.size() > rows) lines.resize(rows);
  for (std::string& line : lines) line = cut(line, columns);
  return lines;
}

int monitor(const std::string& given, bool once, std::ostream& errors) {
  try {
    Watch watch(find_run(given));
    const bool unicode = terminal_has_unicode();
    if (!once && ::isatty(STDOUT_FILENO) == 1) return follow(watch, unicode);
    print(watch.look(), Terminal::size().ws_col, unicode);
    return 0;
  } catch (const Error& error) {
    errors << "trainyard monitor: " << error.what() << '\n';
    return 1;
  }
}

}  // namespace trainyard::cli
