// Cross entropy that takes its time, now much and now little, another on each rank: ahead of the loss, and when
// backward comes through it. Where a file says so, backward stays there for a while, says in the file how often each
// thread went to sleep meanwhile, and kills the process.
#include <ATen/ops/cross_entropy_loss.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include <trainyard/loss.hpp>

namespace {

using namespace trainyard;

class Delayed final : public Loss {
 public:
  struct Options {
    double seconds = 1e-3;
    std::string place;
  };
  static void describe(Manifest<Options>& m) {
    m.name("delayed").version("1.0.0").summary("Cross entropy after random delays.");
    m.option("seconds", &Options::seconds, "the longest").min(0.0);
    m.option("place", &Options::place, "file with the number of the backward, from 1, that ends the process");
  }
  explicit Delayed(const Options& options) : options_(options) {
    if (!options.place.empty()) std::ifstream(options.place) >> last_;
    if (const char* rank = std::getenv("RANK")) calls_ = static_cast<std::uint32_t>(std::atoi(rank)) * 7919u;
  }

  void check(const std::vector<std::int64_t>&, const BatchSchema&) const override {}

  at::Tensor forward(const at::Tensor& output, const Batch& batch) const override {
    delay();
    if (output.requires_grad())
      output.register_hook([this](const at::Tensor&) {
        delay();
        if (++backwards_ == last_) end();
      });
    return at::cross_entropy_loss(output, batch.target);
  }

 private:
  void delay() const {
    const std::uint32_t drawn = calls_.fetch_add(1) * 2654435761u;
    std::this_thread::sleep_for(std::chrono::duration<double>(options_.seconds * drawn / 4294967296.0));
  }

  /// How often each thread of the process has gone to sleep.
  static std::map<std::string, std::int64_t> sleeps() {
    std::map<std::string, std::int64_t> found;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream status(thread.path() / "status");
      std::string name;
      for (std::string key, value; status >> key && std::getline(status >> std::ws, value);)
        if (key == "Name:")
          name = value;
        else if (key == "voluntary_ctxt_switches:")
          found[name] = std::stoll(value);
    }
    return found;
  }

  void end() const {
    const std::map<std::string, std::int64_t> before = sleeps();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::ofstream said(options_.place);
    for (const auto& [name, count] : sleeps()) said << name << ' ' << count - before.at(name) << '\n';
    said.close();
    raise(SIGKILL);
  }

  const Options options_;
  std::int64_t last_ = 0;
  mutable std::atomic<std::int64_t> backwards_{0};
  mutable std::atomic<std::uint32_t> calls_{0};
};

}  // namespace

TRAINYARD_PLUGIN(Delayed)
