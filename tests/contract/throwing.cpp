// A plugin that throws, in each of its calls: the run ends in order, and the message says who, where and
// when.
#include <unistd.h>

#include <catch2/catch.hpp>

#include "contract/host_run.hpp"
#include "contract/process.hpp"
#include "core/plugins/kinds.hpp"
#include "support/folder.hpp"
#include "support/run.hpp"

namespace throwing_tests {

using namespace trainyard;
using namespace trainyard::contract;
using Catch::Matchers::Contains;
using plugins::PluginFile;

namespace {

const plugins::Registry& registry() {
  static const auto made =
      plugins::Registry::scan({TRAINYARD_PLUGIN_DIR, TRAINYARD_BINARY_DIR "/tests/contract/throwers"});
  return made;
}

std::vector<std::string> choices(const PluginFile& file, const std::string& option) {
  for (const OptionSpec& spec : file.manifest.options)
    if (spec.name == option) return spec.choices;
  return {};
}

/// While it lives, standard error goes into a file.
class CapturedErrors {
 public:
  CapturedErrors() : file_(folder_ / "stderr"), before_(dup(STDERR_FILENO)) {
    if (std::freopen(file_.c_str(), "w", stderr) == nullptr)
      throw std::runtime_error("cannot redirect stderr");
  }
  ~CapturedErrors() {
    std::fflush(stderr);
    dup2(before_, STDERR_FILENO);
    close(before_);
  }
  std::string text() const {
    std::fflush(stderr);
    return test::read_file(file_);
  }

 private:
  test::Folder folder_;
  std::string file_;
  int before_;
};

/// A training of two short epochs with the thrower in its slot, an evaluation after each.
std::string run_with(const PluginFile& thrower, const std::string& when, const std::string& call,
                     const std::string& what) {
  std::string options = when + " = \"" + call + "\"\nwhat = \"" + what + "\"\n";
  if (thrower.manifest.kind == "optimizer") options += "lr = 0.1\n";
  if (thrower.manifest.kind == "checkpointer") options += "interval = \"2ba\"\n";
  return HostRun{&check::surroundings().front(), thrower, options}.text();
}

}  // namespace

TEST_CASE("whatever a plugin throws, in any call, is reported with slot, plugin and step") {
  int runs = 0;
  for (const plugins::KindRow& known : plugins::kinds) {
    if (known.beside) continue;  // no run calls it
    const std::string kind = known.kind.name;
    INFO("a thrower of kind " << kind);
    REQUIRE(registry().find(kind, "thrower").size() == 1);
    const PluginFile* thrower = registry().find(kind, "thrower").front();
    const std::string table = message_path(*thrower, "");
    const std::string slot = table.substr(0, table.size() - 1);
    for (const char* when : {"ahead", "within"})
      for (const std::string& call : choices(*thrower, when)) {
        if (call == "nothing") continue;
        for (const std::string& what : choices(*thrower, "what")) {
          ++runs;
          INFO(kind << " throws " << what << " in " << call);
          const std::string text = run_with(*thrower, when, call, what);
          std::string errors;
          Outcome outcome;
          if (needs_ranks(*thrower)) {  // every rank has one, and all throw
            const Apart ranks(text);
            ranks.train({}, 2);
            errors = ranks.said();
            outcome = outcome_of(ranks.run());
          } else {
            const CapturedErrors captured;
            outcome = train_shortly(text, {"data.workers=" + std::to_string(runs % 2)}, registry());
            errors = captured.text();
          }
          INFO(errors);
          const std::string said =
              what == "foreign" ? "threw something that is no std::exception" : "thrown in " + call;
          if (kind == "sink") {  // the run goes on without it
            CHECK(outcome.exit_code == 0);
            CHECK_THAT(errors, Contains("thrower") && (Contains(said) || Contains("no std::exception")));
            continue;
          }
          if (kind == "rule" && std::string(when) == "within") {  // beside the run, which goes on
            CHECK(outcome.exit_code == 0);
            CHECK(outcome.steps == 6);
            continue;
          }
          CHECK(outcome.exit_code == (what == "data" ? 4 : 3));
          CHECK_THAT(outcome.error, Contains("[" + slot) && Contains("thrower") && Contains(said));
          if (std::string(when) == "within") CHECK_THAT(outcome.error, Contains(", step "));
          CHECK_THAT(errors, Contains(outcome.error));  // and on standard error, once
          CHECK(errors.find(outcome.error) == errors.rfind(outcome.error));
        }
      }
  }
  WARN(runs << " runs ended by a plugin");
}

TEST_CASE("with on_error = \"disable\" a hook that throws is left behind") {
  const PluginFile* thrower = registry().find("hook", "thrower").front();
  for (const std::string& call : choices(*thrower, "within")) {
    if (call == "nothing") continue;
    INFO(call);
    const CapturedErrors captured;
    const Outcome outcome =
        train_shortly(run_with(*thrower, "within", call, "error"), {"hooks.0.on_error=disable"}, registry());
    CHECK_THAT(outcome.error, Catch::Equals(""));
    CHECK(outcome.exit_code == 0);
    CHECK(outcome.steps == 6);
  }
}

}  // namespace throwing_tests
