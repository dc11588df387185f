// Progress for a person: one line that is drawn over on a terminal, plain lines elsewhere.
//
//   epoch 3/30 ━━━━━━━━━━━━━━━━━━━━━━━━ 42% loss 0.3121 accuracy 0.9120 12.3k samples/s 1:23 left
//   eval  epoch 3 step 180  loss 0.2973  accuracy 0.9265
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/ioctl.h>
#include <unistd.h>

#include <trainyard/error.hpp>
#include <trainyard/sink.hpp>

#include "lib/printed.hpp"
#include "lib/words.hpp"

namespace {

using trainyard::Record;
namespace lib = trainyard::lib;

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::ceil(seconds));
  const int minutes = static_cast<int>(whole / 60), rest = static_cast<int>(whole % 60);
  if (whole < 3600) return lib::printed("%d:%02d", minutes, rest);
  return lib::printed("%lld:%02d:%02d", static_cast<long long>(whole / 3600), minutes % 60, rest);
}

/// "train/loss" is known as "loss".
std::string_view short_name(std::string_view name) {
  return name.substr(name.rfind('/') + 1);
}

class Console final : public trainyard::Sink {
 public:
  struct Options {
    std::vector<std::string> metrics;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("console").version("1.0.0").summary("Progress on standard output.");
    m.option(
        "metrics", &Options::metrics,
        "names shown while training (\"train/loss\"); empty: the loss and accuracy, else the first metric");
  }
  explicit Console(const Options& options) : options_(options) {}

  void open(const trainyard::RunInfo& run) override {
    run_ = run;
    first_.reset();
    for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {  // the first that is set decides
      const char* value = std::getenv(name);
      if (value == nullptr || *value == '\0') continue;
      unicode_ = std::strstr(value, "UTF-8") != nullptr || std::strstr(value, "utf8") != nullptr;
      break;
    }
  }

  void record(const Record& record) override {
    if (run_.quiet) return;
    switch (record.what) {
      case Record::What::train: return progress(record);
      case Record::What::eval: return line("eval  " + place(record) + numbers(record));
      case Record::What::message: return line(record.text);
      case Record::What::summary: {
        finish_bar();
        if (!record.values.empty())
          line("done  " + place(record) + numbers(record) + "  in " + clock_text(record.seconds));
        if (!record.text.empty()) line(record.text);
      }
    }
  }

  void close() override { finish_bar(); }

 private:
  void progress(const Record& record) {
    if (!first_) first_ = Mark{record.step, record.seconds};
    if (!run_.terminal) return line("train " + place(record) + "  " + lib::join(facts(record), "  "));
    bar_ = bar(record);
    write("\r" + bar_ + "\x1b[K");  // drawn over, the rest of the line erased after: nothing flickers
  }

  /// A line that stays; the bar, if there is one, goes on below it.
  void line(const std::string& text) {
    if (bar_.empty()) return write(text + "\n");
    write("\r" + text + "\x1b[K\n" + bar_ + "\x1b[K");
  }

  void finish_bar() {
    if (bar_.empty()) return;
    bar_.clear();
    write("\n");
  }

  static std::string place(const Record& record) {
    return "epoch " + std::to_string(record.epoch) + " step " + std::to_string(record.step);
  }

  static std::string numbers(const Record& record) {
    std::string text;
    for (const auto& [name, value] : record.values) text += "  " + name + " " + lib::metric_text(value);
    return text;
  }

  /// What a person wants to know, most wanted first.
  std::vector<std::string> facts(const Record& record) const {
    std::vector<std::string> parts;
    const auto show = [&](const std::pair<std::string, double>& value) {
      parts.push_back(std::string(short_name(value.first)) + " " + lib::metric_text(value.second));
    };
    const auto named = [&](auto&& wanted) {
      return std::find_if(record.values.begin(), record.values.end(), wanted);
    };
    const auto none = record.values.end();
    if (!options_.metrics.empty()) {
      for (const std::string& name : options_.metrics)
        if (const auto found = named([&](const auto& value) { return value.first == name; }); found != none)
          show(*found);
    } else {
      const auto is = [](const char* name) {
        return [name](const auto& value) { return short_name(value.first) == name; };
      };
      const auto metric = [](const auto& value) {
        return value.first.starts_with("train/") && short_name(value.first) != "loss";
      };
      if (const auto loss = named(is("loss")); loss != none) show(*loss);
      if (const auto accuracy = named(is("accuracy")); accuracy != none)
        show(*accuracy);
      else if (const auto other = named(metric); other != none)
        show(*other);
    }
    const auto speed = named([](const auto& value) { return value.first == "samples_per_second"; });
    if (speed != none) parts.push_back(lib::rate_text(speed->second) + " samples/s");
    if (const std::optional<double> left = seconds_left(record)) parts.push_back(clock_text(*left) + " left");
    return parts;
  }

  /// At the speed since the first record, which the set-up and the first steps do not blur.
  std::optional<double> seconds_left(const Record& record) const {
    if (run_.total_steps <= 0 || record.step <= 0) return std::nullopt;
    const Mark start = record.step > first_->step ? *first_ : Mark{run_.resumed_at, 0.0};
    if (record.step <= start.step) return std::nullopt;
    const double a_step = (record.seconds - start.seconds) / static_cast<double>(record.step - start.step);
    return a_step * static_cast<double>(std::max<std::int64_t>(run_.total_steps - record.step, 0));
  }

  std::string bar(const Record& record) const {
    const std::size_t width = terminal_width() - 1;  // a full last column would wrap
    std::string head =
        "epoch " +
        std::to_string(record.epoch + (run_.total_steps > 0 && record.step >= run_.total_steps ? 0 : 1));
    if (run_.total_steps > 0 && run_.steps_per_epoch > 0)
      head += "/" + std::to_string((run_.total_steps + run_.steps_per_epoch - 1) / run_.steps_per_epoch);
    std::vector<std::string> parts = facts(record);
    constexpr std::size_t least = 8, most = 40;  // cells of the bar
    const bool known = run_.total_steps > 0;
    const double share =
        known ? std::min(1.0, static_cast<double>(record.step) / static_cast<double>(run_.total_steps)) : 0.0;
    const std::string percent = known ? lib::printed(" %3.0f%%", std::floor(share * 100.0)) : "";
    const auto room = [&] {
      const std::string tail = percent + (parts.empty() ? "" : "  ") + lib::join(parts, "  ");
      const std::size_t taken = head.size() + 1 + tail.size();
      return taken < width ? width - taken : 0;
    };
    while (!parts.empty() && room() < (known ? least : 1)) parts.pop_back();
    std::string text = head;
    if (const std::size_t cells = std::min(room(), most); known && cells >= least)
      text += " " + cells_text(share, cells);
    text += percent;
    if (!parts.empty()) text += "  " + lib::join(parts, "  ");
    return text.size() > width && text.find('\x1b') == std::string::npos ? text.substr(0, width) : text;
  }

  std::string cells_text(double share, std::size_t cells) const {
    const auto done = static_cast<std::size_t>(share * static_cast<double>(cells));
    std::string text = "\x1b[32m";
    for (std::size_t i = 0; i < cells; ++i) {
      if (i == done) text += "\x1b[2m";
      text += unicode_ ? "━" : i < done ? "=" : "-";
    }
    return text + "\x1b[0m";
  }

  static std::size_t terminal_width() {
    winsize size{};
    return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
  }

  static void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0)
        throw trainyard::DataError(std::string("cannot write to standard output: ") + std::strerror(errno));
      text.remove_prefix(static_cast<std::size_t>(count));
    }
  }

  struct Mark {
    std::int64_t step = 0;
    double seconds = 0.0;
  };

  Options options_;
  trainyard::RunInfo run_;
  bool unicode_ = false;
  std::optional<Mark> first_;
  std::string bar_;  // as drawn last; empty: none on the screen
};

}  // namespace

TRAINYARD_PLUGIN(Console)
