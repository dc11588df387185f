#include "core/programs/monitor.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <trainyard/error.hpp>

#include "core/cli/columns.hpp"
#include "core/programs/follow.hpp"
#include "core/programs/programs.hpp"
#include "core/programs/time_text.hpp"
#include "lib/printed.hpp"

namespace trainyard::cli {
namespace {

using control::Json;

constexpr std::size_t curve_rows = 12, least_rows = 6;
constexpr timespec tick{.tv_sec = 0, .tv_nsec = 500'000'000};

/// Returns at most `columns` characters of UTF-8 text; all text here has characters one column wide.
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

std::string headline(const View& view) {
  const RunState& run = view.run;
  std::string text = printable(run.status ? run.status->run : run.path) + "  ";
  text += run.status ? name(run.status->state) : name(run.life);
  text += "  step " + std::to_string(run.steps);
  if (run.total_steps > 0)
    text += " of " + std::to_string(run.total_steps) + " (" + std::to_string(share(run)) + "%)";
  if (run.status) text += "  epoch " + std::to_string(run.status->epoch);
  const double rate = run.status ? run.status->samples_per_second : view.samples_per_second;
  if (rate > 0) text += "  " + lib::rate_text(rate) + " samples/s";
  if (run.status && run.status->seconds_left) text += "  " + span_text(*run.status->seconds_left) + " left";
  return text;
}

/// Formats losses and metrics, several to a line, those of the validation first.
std::vector<std::string> metric_lines(const RunState& run, std::size_t columns) {
  std::vector<std::string> lines;
  for (const char* prefix : {"val/", "test/", "train/", "lr"})
    for (const auto& [key, value] : run.metrics) {
      if (!key.starts_with(prefix)) continue;
      const std::string text = printable(key) + " " + lib::metric_text(value);
      if (lines.empty() || lines.back().size() + 2 + text.size() > columns)
        lines.push_back(text);
      else
        lines.back() += "  " + text;
    }
  return lines;
}

/// Reads the files of a run as they grow.
class Watch {
 public:
  explicit Watch(const std::string& path)
      : metrics_(path + "/metrics.jsonl"), journal_(path + "/journal.jsonl") {
    view_.run.path = path;
  }

  const View& look() {
    RunState run =
        life_of(view_.run.path, loop_patience);  // before the files, so that they have its last records
    run.steps = view_.run.steps;
    run.metrics = std::move(view_.run.metrics);
    view_.run = std::move(run);
    LineFollower::News news = metrics_.take();
    if (news.restarted) {
      view_.loss.clear();
      view_.validation.clear();
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
    if (!values.is_object()) return;
    for (const auto& [metric, value] : values.items())
      if (const auto number = control::number(value); number && metric.starts_with("val/"))
        view_.validation[metric].add(view_.run.steps, *number);
    if (record.value("what", Json()) != "train") return;
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

/// The terminal while frames are shown: alternate screen, no cursor, keys without Enter; restored at the end.
/// Signals are delivered only in wait().
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

  /// Returns false where the terminal is gone.
  static bool write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }

  /// Waits for the next tick, a key or a signal. True: the user wants to leave.
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

std::vector<std::string> frame_of(const std::vector<View>& views, std::size_t columns, std::size_t rows,
                                  bool unicode) {
  return views.size() == 1 ? frame(views.front(), columns, rows, unicode)
                           : frame(views, columns, rows, unicode);
}

std::vector<View> look(std::vector<Watch>& watches) {
  std::vector<View> views;
  for (Watch& watch : watches) views.push_back(watch.look());
  return views;
}

void print(const std::vector<View>& views, std::size_t columns, bool unicode) {
  std::string text;
  for (const std::string& line : frame_of(views, columns, 50, unicode)) text += line + "\n";
  Terminal::write(text);
}

int follow(std::vector<Watch>& watches, bool unicode) {
  {
    Terminal terminal;
    for (;;) {
      const std::vector<View> views = look(watches);
      if (std::ranges::none_of(views, [](const View& view) { return going(view.run.life); })) break;
      const winsize size = Terminal::size();
      std::string text = "\x1b[H";
      const auto lines = frame_of(views, size.ws_col, size.ws_row, unicode);
      for (std::size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "" : "\r\n") + lines[i] + "\x1b[K";
      if (!Terminal::write(text + "\x1b[J")) return 1;
      if (terminal.wait()) return caught == 0 ? 0 : 128 + caught;
    }
  }
  print(look(watches), Terminal::size().ws_col, unicode);  // all ended: leaves this on the screen
  return 0;
}

/// Returns the metric of the validation to draw besides its loss; empty where there is none.
std::string second_metric(const View& view) {
  for (const auto& [metric, series] : view.validation)
    if (metric != "val/loss") return metric;
  return {};
}

/// Adds a drawing below a title line.
void add_drawing(const std::string& title, const std::vector<Drawn>& curves, std::size_t columns,
                 std::size_t rows, bool unicode, std::vector<std::string>& lines) {
  const std::vector<std::string> drawing = draw(curves, columns, rows - 1, unicode);
  if (drawing.empty()) return;
  lines.push_back(title);
  lines.insert(lines.end(), drawing.begin(), drawing.end());
}

/// Draws losses in one drawing and another validation metric in a second, within `rows` rows.
void add_curves(const View& view, std::size_t columns, std::size_t rows, bool unicode,
                std::vector<std::string>& lines) {
  const std::string second = second_metric(view);
  const auto loss = view.validation.find("val/loss");
  const bool both =
      !second.empty() && view.validation.at(second).points().size() > 1 && rows >= 2 * least_rows;
  const std::size_t each = std::min(both ? rows / 2 : rows, curve_rows);
  std::vector<Drawn> losses = {{.series = &view.loss}};
  if (loss == view.validation.end()) {
    for (std::string& line : draw(losses, columns, each, unicode)) lines.push_back(std::move(line));
  } else {
    losses.push_back({.series = &loss->second, .letter = 'o', .gap = 2});
    add_drawing("train/loss, val/loss (o)", losses, columns, each, unicode, lines);
  }
  if (both)
    add_drawing(printable(second) + " (o)",
                {{.series = &view.validation.at(second), .letter = 'o', .gap = 2}}, columns, each, unicode,
                lines);
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
  for (const std::string& line : time_lines(view.run)) below.push_back(line);
  if (view.run.status && view.run.status->retired > 0)
    below.push_back(std::to_string(view.run.status->retired) + " retired plugins stay in memory");
  if (!view.journal.empty()) below.insert(below.end(), {"", "journal"});
  for (const std::string& line : view.journal) below.push_back("  " + line);
  if (!going(view.run.life)) below.insert(below.end(), {"", how_it_ended(view.run)});

  std::vector<std::string> lines = {headline(view)};
  for (std::string& line : metric_lines(view.run, columns)) lines.push_back(std::move(line));
  const std::size_t taken = lines.size() + below.size();
  const std::size_t free = taken + least_rows < rows ? rows - taken : least_rows;
  add_curves(view, columns, free, unicode, lines);
  lines.insert(lines.end(), below.begin(), below.end());
  if (lines.size() > rows) lines.resize(rows);
  for (std::string& line : lines) line = cut(line, columns);
  return lines;
}

std::vector<std::string> frame(const std::vector<View>& views, std::size_t columns, std::size_t rows,
                               bool unicode) {
  std::vector<std::string> lines;
  const auto letter = [](std::size_t i) { return static_cast<char>('a' + i % 26); };
  for (std::size_t i = 0; i < views.size(); ++i) {
    lines.push_back(std::string(1, letter(i)) + "  " + headline(views[i]));
    for (const std::string& line : time_lines(views[i].run)) lines.push_back("   " + line);
  }
  std::vector<std::vector<std::string>> table = {{"", "train/loss"}};
  const std::string second = second_metric(views.front());
  for (const std::string& metric : {std::string("val/loss"), second})
    if (!metric.empty()) table.front().push_back(printable(metric));
  for (std::size_t i = 0; i < views.size(); ++i) {
    table.push_back({std::string(1, letter(i))});
    for (const std::string& metric : {std::string("train/loss"), std::string("val/loss"), second}) {
      if (metric.empty()) continue;
      const auto found = views[i].run.metrics.find(metric);
      table.back().push_back(found == views[i].run.metrics.end() ? "-" : lib::metric_text(found->second));
    }
  }
  std::ostringstream text;
  print_columns(table, "", text);
  std::vector<std::string> below = {""};
  add_lines(text.str(), below);

  const std::size_t taken = lines.size() + below.size();
  const std::size_t free = taken + least_rows < rows ? rows - taken : least_rows;
  std::vector<std::string> titles = {"train/loss", "val/loss", second};
  std::vector<std::vector<Drawn>> drawings(titles.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    drawings[0].push_back({.series = &views[i].loss, .letter = letter(i), .gap = 10});
    for (std::size_t d = 1; d < titles.size(); ++d)
      if (const auto found = views[i].validation.find(titles[d]); found != views[i].validation.end())
        drawings[d].push_back({.series = &found->second, .letter = letter(i), .gap = 10});
  }
  const auto shown = static_cast<std::size_t>(
      std::ranges::count_if(drawings, [](const auto& each) { return !each.empty(); }));
  const std::size_t fit = std::clamp<std::size_t>(free / least_rows, 1, shown);
  for (std::size_t d = 0, drawn = 0; d < titles.size() && drawn < fit; ++d) {
    if (drawings[d].empty()) continue;
    add_drawing(printable(titles[d]), drawings[d], columns, std::min(free / fit, curve_rows), unicode, lines);
    ++drawn;
  }
  lines.insert(lines.end(), below.begin(), below.end());
  if (lines.size() > rows) lines.resize(rows);
  for (std::string& line : lines) line = cut(line, columns);
  return lines;
}

int monitor(const std::vector<std::string>& given, bool once, std::ostream& errors) {
  try {
    std::vector<Watch> watches;
    for (const std::string& each : given) watches.emplace_back(find_run(each));
    const bool unicode = terminal_has_unicode();
    if (!once && ::isatty(STDOUT_FILENO) == 1) return follow(watches, unicode);
    print(look(watches), Terminal::size().ws_col, unicode);
    return 0;
  } catch (const Error& error) {
    errors << "trainyard monitor: " << error.what() << '\n';
    return 1;
  }
}

namespace {

struct MonitorArguments {
  std::vector<std::string> runs;
  bool once = false;
};

int follow_all(MonitorArguments& given) {
  return monitor(given.runs, given.once, std::cerr);
}

}  // namespace

void add_monitor(Arguments verb, CommandLine& line) {
  const auto given = std::make_shared<MonitorArguments>();
  verb.add("run", given->runs,
           "directories of runs, or their names below runs/; several are drawn over each other")
      .required()
      .offers("run");
  verb.flag("--once", given->once, "print it once, as where the output is no terminal");
  when_chosen(verb, line, given, follow_all);
}

}  // namespace trainyard::cli
