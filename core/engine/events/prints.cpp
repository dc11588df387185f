#include "core/engine/events/prints.hpp"

#include <atomic>
#include <cstdio>
#include <iostream>
#include <streambuf>

#include "core/engine/events/fault_report.hpp"
#include "core/engine/events/where.hpp"

namespace trainyard::events {
namespace {

constexpr std::string_view sinks = "logging.sinks";  // sinks may print what they like

std::atomic<const Prints::Take*> taking{nullptr};
thread_local bool handing_over = false;

/// The unfinished line of a thread.
struct Begun {
  std::string plugin, text;
  ~Begun() { end(); }
  void add(std::string_view more) {
    for (const char each : more)
      if (each == '\n')
        end();
      else if (each != '\r')
        text += each;
  }
  void end() {
    if (const Prints::Take* take = taking.load(); take != nullptr && !text.empty()) {
      handing_over = true;
      (*take)(plugin, text);
      handing_over = false;
    }
    text.clear();
  }
};
thread_local Begun begun;

/// Returns the plugin that the calling thread is in, or that began it; empty for sinks and the host.
std::string printing_plugin() {
  const Where call = where(call_frame);
  if (call.slot != nullptr) return std::string_view(call.slot).starts_with(sinks) ? "" : call.plugin;
  return call_frame.bus.load() == nullptr ? report::FaultReport::whose_thread() : std::string();
}

void print(std::FILE* original, std::string_view text) {
  const std::string plugin = taking == nullptr || handing_over ? std::string() : printing_plugin();
  if (plugin.empty()) {
    std::fwrite(text.data(), 1, text.size(), original);
    return;
  }
  if (plugin != begun.plugin) begun.end();
  begun.plugin = plugin;
  begun.add(text);
}

/// One of the two streams, for C and for C++. It lives as long as the process: others may hold it.
class Stream final : public std::streambuf {
 public:
  explicit Stream(std::FILE*& variable) : variable_(variable), original_(variable) {
    cookie_ = ::fopencookie(this, "w",
                            {.read = nullptr, .write = &Stream::write, .seek = nullptr, .close = nullptr});
    if (cookie_ != nullptr) std::setvbuf(cookie_, nullptr, _IONBF, 0);
  }
  void take() {
    if (cookie_ != nullptr) variable_ = cookie_;
  }
  void give_back() { variable_ = original_; }

 private:
  static ssize_t write(void* self, const char* text, std::size_t size) {
    print(static_cast<Stream*>(self)->original_, {text, size});
    return static_cast<ssize_t>(size);
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    print(original_, {text, static_cast<std::size_t>(size)});
    return size;
  }
  int overflow(int character) override {
    const char text = static_cast<char>(character);
    if (character != traits_type::eof()) print(original_, {&text, 1});
    return traits_type::not_eof(character);
  }
  int sync() override { return std::fflush(original_); }

  std::FILE*& variable_;
  std::FILE* const original_;
  std::FILE* cookie_ = nullptr;
};

struct Streams {
  Stream out{stdout}, error{stderr};
  std::streambuf *cout = nullptr, *cerr = nullptr, *clog = nullptr;
};
Streams& streams() {
  static auto& both = *new Streams();
  return both;
}

}  // namespace

Prints::Prints(Take take) {
  Streams& both = streams();
  taking = new Take(std::move(take));
  std::cout.flush();
  both.out.take();
  both.error.take();
  both.cout = std::cout.rdbuf(&both.out);
  both.cerr = std::cerr.rdbuf(&both.error);
  both.clog = std::clog.rdbuf(&both.error);
}

Prints::~Prints() {
  Streams& both = streams();
  begun.end();
  std::cout.rdbuf(both.cout);
  std::cerr.rdbuf(both.cerr);
  std::clog.rdbuf(both.clog);
  both.out.give_back();
  both.error.give_back();
  taking = nullptr;  // `take` is never freed: a thread that was left behind may be in it
}

}  // namespace trainyard::events
