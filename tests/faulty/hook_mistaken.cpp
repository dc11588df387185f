// What authors of plugins do by mistake, and what passes for a while.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <thread>

#include <trainyard/hook.hpp>
#include <trainyard/host.hpp>
#include <trainyard/network.hpp>
#include <trainyard/state.hpp>

#include "fault.hpp"

namespace {

using namespace trainyard;

std::int64_t calls_of_all = 0;

class Mistaken final : public Hook {
 public:
  struct Options {
    std::string mistake = "none";
    std::int64_t step = 1;
  };
  static void describe(Manifest<Options>& m) {
    m.name("mistaken").version("1.0.0").summary("Does what a plugin must not.");
    m.option("mistake", &Options::mistake, "which")
        .one_of({"none", "exit", "exit on a thread", "throw on a thread", "crash on a thread", "print",
                 "print on a thread", "host in the constructor", "endless loop", "context in save",
                 "context in a later hook", "member not saved", "static variable",
                 "exit in the constructor"});
    m.option("step", &Options::step, "from which on");
    m.hook<&Mistaken::before_step>(Event::before_step);
    m.hook<&Mistaken::after_step>(Event::after_step);
  }
  explicit Mistaken(const Options& options) : options_(options) {
    if (is("host in the constructor")) host().log(LogLevel::info, "here");
    if (is("exit in the constructor")) std::exit(0);
  }

  void before_step(StepContext& context) {
    if (context.step_number() < options_.step) return;
    if (is("exit")) std::exit(0);
    if (is("endless loop"))
      for (std::atomic<int> turns = 0;;) ++turns;
    if (is("print")) print("in a hook");
    if (is("print on a thread")) std::thread([this] { print("on a thread"); }).join();
    if (is("member not saved")) ++calls_;
    if (is("static variable")) ++calls_of_all;
    if (context.step_number() == options_.step) begin_thread();
    if (kept_ == nullptr) kept_ = &context;
  }
  void after_step(StepContext& context) {
    if (is("context in a later hook") && context.step_number() > options_.step) kept_->network();
  }
  void save(StateWriter&) const override {
    if (is("context in save") && kept_ != nullptr) kept_->network();
  }
  void load(const StateReader&) override {}

 private:
  bool is(std::string_view mistake) const { return options_.mistake == mistake; }

  /// Of its own, which goes wrong when the loop is elsewhere.
  void begin_thread() {
    const auto later = [](auto work) {
      std::thread([work] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        work();
      }).detach();
    };
    if (is("exit on a thread")) later([] { std::exit(0); });
    if (is("throw on a thread")) later([] { faulty::go_wrong("throw"); });
    if (is("crash on a thread")) later([] { faulty::go_wrong("segv"); });
  }

  static void print(const std::string& where) {
    std::printf("by printf %s\n", where.c_str());
    std::fputs("by fputs to stderr", stderr);
    std::fprintf(stderr, " %s\n", where.c_str());
    std::cout << "by cout " << where << std::endl;
    std::cerr << "by cerr " << where << '\n';
  }

  Options options_;
  std::int64_t calls_ = 0;
  const StepContext* kept_ = nullptr;
};

}  // namespace

TRAINYARD_PLUGIN(Mistaken)
