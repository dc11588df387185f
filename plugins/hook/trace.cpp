// A trace of steps, events and plugins that chrome://tracing and ui.perfetto.dev open: the Trace Event Format,
// an array of complete events ("ph": "X"; docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
// Times are microseconds since the second in which the file was begun, as doubles, which readers make of them, have no
// room for those since 1970. A run that goes on after a kill, or was resumed, adds to the file as another process. The
// file is an array whose end is written last: readers take one without.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/error.hpp>
#include <trainyard/hook.hpp>
#include <trainyard/host.hpp>
#include <trainyard/ranks.hpp>
#include <trainyard/spans.hpp>

#include "lib/read_file.hpp"

namespace {

using namespace trainyard;
using Clock = std::chrono::steady_clock;

constexpr std::string_view end_of_file = "\n]\n";
constexpr std::string_view began = ",\"began\":";  ///< seconds since 1970, in the first line

/// Spans by what they began with: of two that begin at once, the outer one first.
void sort(std::vector<Span>& spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
}

/// Numbers by to_chars: this is most of what a trace costs.
void append(std::int64_t number, std::string& text) {
  char digits[24];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

/// Microseconds with three places: a trace in whole ones has short hooks of no length.
void append_microseconds(std::chrono::nanoseconds time, std::string& text) {
  append(time.count() / 1000, text);
  const auto rest = static_cast<int>(time.count() % 1000);
  text += {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
           static_cast<char>('0' + rest % 10)};
}

/// Writes blocks of spans, each as a whole.
class TraceFile {
 public:
  /// Adds to the file that is there, behind its last whole event. Throws DataError.
  TraceFile(std::string path, const std::string& process) : path_(std::move(path)) {
    const std::string before = cut_end();
    const std::int64_t now =
        std::chrono::floor<std::chrono::seconds>(Clock::now().time_since_epoch() + offset_).count();
    const std::size_t found = before.find(began);
    const std::int64_t began_at =
        found == std::string::npos ? now : std::atoll(before.c_str() + found + began.size());
    offset_ -= std::chrono::seconds(began_at);
    file_.open(path_, std::ios::binary | std::ios::app);
    file_ << (before.empty() ? "[\n" : ",\n") << R"({"name":"process_name","ph":"M","pid":)" << pid_
          << R"(,"tid":1,"args":{"name":")" << process << '"' << began << began_at << "}}" << std::flush;
    if (!file_) throw DataError("cannot write '" + path_ + "': is there room, and may it be written?");
  }

  void write(std::vector<Span>& spans) {
    sort(spans);
    std::string text;
    for (const Span& span : spans) append_line(span, text);
    file_ << text << std::flush;
  }
  void end() { file_ << end_of_file << std::flush; }
  bool good() const { return file_.good(); }
  const std::string& path() const { return path_; }

 private:
  /// What remains.
  std::string cut_end() {
    std::error_code absent;
    if (std::filesystem::file_size(path_, absent) == 0 || absent) return {};
    std::string text = lib::read_file(path_).value_or("");
    if (text.ends_with(end_of_file))
      text.resize(text.size() - end_of_file.size());
    else if (!text.ends_with("}}"))  // a kill cut the last line
      text.resize(text.rfind(",\n") == std::string::npos ? 0 : text.rfind(",\n"));
    std::filesystem::resize_file(path_, text.size());
    return text;
  }

  void append_line(const Span& span, std::string& text) const {
    static constexpr const char* categories[] = {"step", "phase", "event", "hook"};
    text.append(",\n{\"name\":\"").append(span.plugin.empty() ? span.name : span.plugin);
    text.append("\",\"cat\":\"").append(categories[static_cast<int>(span.what)]);
    text.append("\",\"ph\":\"X\",\"ts\":");
    append_microseconds(span.begin.time_since_epoch() + offset_, text);
    text.append(",\"dur\":");
    append_microseconds(span.end - span.begin, text);
    text.append(",\"pid\":").append(pid_).append(",\"tid\":1,\"args\":{\"step\":");
    append(span.step, text);
    if (!span.plugin.empty()) text.append(",\"event\":\"").append(span.name).append("\"");
    text.append("}}");
  }

  const std::string pid_ = std::to_string(::getpid());
  std::string path_;
  std::ofstream file_;
  std::chrono::nanoseconds offset_ =  ///< from the clock of spans to the times of the file
      std::chrono::system_clock::now().time_since_epoch() - Clock::now().time_since_epoch();
};

class Trace final : public Hook, public SpanWatcher {
 public:
  struct Options {
    std::int64_t from = 10;
    std::int64_t steps = 200;
    std::string path = "trace.json";
  };
  static void describe(Manifest<Options>& m) {
    m.name("trace").version("1.0.0").summary("Writes a trace of steps, events and plugins for Perfetto.");
    m.option("from", &Options::from, "first step that is traced, counted from 1").min(1);
    m.option("steps", &Options::steps, "how many are, with what comes between them; 0: all to the end")
        .min(0);
    m.option("path", &Options::path, "name of the file in the run's folder").output();
    m.hook<&Trace::open>(Event::fit_start);
    m.hook<&Trace::open>(Event::swap_in);
    m.hook<&Trace::close>(Event::swap_out);
    m.hook<&Trace::close>(Event::shutdown);
  }
  explicit Trace(const Options& options) : options_(options) {}

  void open(StepContext&) {
    const Ranks* ranks = host().run().ranks;
    const std::string rank = ranks != nullptr ? std::to_string(ranks->rank()) : "";
    file_ = std::make_unique<TraceFile>(
        host().run().directory + "/" + options_.path + (rank.empty() ? "" : "." + rank),
        rank.empty() ? "trainyard" : "rank " + rank);
    writer_ = host().thread("writer", [this](std::stop_token stop) { work(std::move(stop)); });
  }

  bool wants_spans(std::int64_t step) noexcept override {
    const bool wanted =
        file_ && step >= options_.from && (options_.steps == 0 || step - options_.from < options_.steps);
    if (!spans_.empty() && (!wanted || spans_.size() >= most)) hand_over();
    return wanted;
  }

  void span(const Span& span) noexcept override { spans_.push_back(span); }

  void close(StepContext&) {
    if (!file_) return;
    hand_over();
    writer_.reset();  // it writes what it has
    file_->end();
    if (!file_->good()) host().log(LogLevel::warning, "the trace ends early: cannot write " + file_->path());
    file_.reset();
  }

 private:
  static constexpr std::size_t most = 4096;  ///< spans that wait for the thread

  void hand_over() {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::exchange(spans_, {}));
    }
    spans_.reserve(2 * most);
    wake_.notify_one();
  }

  void work(std::stop_token stop) {
    std::vector<std::vector<Span>> blocks;
    for (bool last = false; !last;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, stop, [&] { return !waiting_.empty(); });
        last = stop.stop_requested();
        blocks.swap(waiting_);
      }
      for (std::vector<Span>& block : blocks) file_->write(block);
      blocks.clear();
    }
  }

  Options options_;
  std::unique_ptr<TraceFile> file_;
  std::vector<Span> spans_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::vector<std::vector<Span>> waiting_;
  std::shared_ptr<void> writer_;  ///< ends ahead of what it works on, also where nobody closed
};

}  // namespace

TRAINYARD_PLUGIN(Trace)
