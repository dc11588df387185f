// A tool that does as it is told. VERB: its name.
#include <chrono>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <thread>

#include <trainyard/network.hpp>
#include <trainyard/tool.hpp>

namespace {

using namespace trainyard;

class Told final : public Tool {
 public:
  struct Options {
    std::string what = "facts";
  };
  static void describe(Manifest<Options>& m) {
    m.name(VERB).version("1.0.0").summary("Does as it is told.");
    m.option("what", &Options::what, "to do").one_of({"facts", "ragged", "throw", "wait", "train"});
  }
  explicit Told(const Options& options) : options_(options) {}

  Report run(Workshop& shop) override {
    Report report;
    if (options_.what == "throw") throw std::out_of_range("shelf 7");
    if (options_.what == "ragged") {
      report.columns = {"one", "two"};
      report.rows = {{std::int64_t{1}}};
    }
    if (options_.what == "wait")
      for (int done = 0; !shop.stopping(); ++done) {
        shop.progress(done, done + 1);
        std::filesystem::create_directory(shop.folder() + "/waiting");
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    if (options_.what == "train") shop.train(1'000'000, [] {});
    constexpr double infinity = std::numeric_limits<double>::infinity();
    report.facts = {{"nan", std::numeric_limits<double>::quiet_NaN()},
                    {"up", infinity},
                    {"down", -infinity},
                    {"batches", std::ssize(shop.batches("val", 2))},
                    {"parameters", std::ssize(shop.network().parameters())}};
    return report;
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Told)
