#include "core/cli/live_verbs.hpp"

#include <iostream>
#include <memory>

#include "core/cli/ctl_verbs.hpp"
#include "core/cli/monitor_verb.hpp"
#include "core/cli/runs_verb.hpp"

namespace trainyard::cli {
namespace {

using control::Verb;

void add_ctl(CLI::App& app, std::function<int()>& chosen) {
  struct Given {
    CtlOptions options;
    std::string format = "text", watch;
    double timeout = 60.0;
  };
  const auto given = std::make_shared<Given>();
  CLI::App* ctl_verb = app.add_subcommand("ctl", "ask and steer a run that is going");
  ctl_verb->require_subcommand(1);
  ctl_verb->fallthrough();
  ctl_verb->add_option("run", given->options.run, "directory of the run, or its name below runs/")
      ->required();
  ctl_verb->add_option("--timeout", given->timeout, "seconds to wait for the answer (60)")
      ->check(CLI::Range(0.001, 1e6));
  ctl_verb->add_option("--format", given->format, "text or json")->check(CLI::IsMember({"text", "json"}));

  const auto add = [&](Verb verb, const char* help) {
    CLI::App* added = ctl_verb->add_subcommand(std::string(name(verb)), help);
    added->fallthrough();
    added->callback([given, verb, &chosen] {
      given->options.request.verb = verb;
      chosen = [given] {
        given->options.json = given->format == "json";
        given->options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(given->timeout * 1e3));
        return ctl(given->options, std::cout, std::cerr);
      };
    });
    return added;
  };
  control::Request& request = given->options.request;
  add(Verb::status, "what it does, how far it is, what fills its slots");
  add(Verb::set, "change options: set optimizer.lr=3e-4")
      ->add_option("assignments", request.assignments, "KEY=VALUE, as after --set")
      ->required();
  CLI::App* swap = add(Verb::swap, "put another plugin in a slot: swap schedule cosine min_factor=0.1");
  swap->add_option("slot", request.slot, "place in the run file: schedule, model.dropout")->required();
  swap->add_option("type", request.type, "name of the plugin")->required();
  swap->add_option("assignments", request.assignments, "options of the plugin: KEY=VALUE");
  swap->add_option("--watch", given->watch, "go back if it fails within this duration: 5ba")
      ->check([given](const std::string& text) -> std::string {
        given->options.request.watch = Duration::parse(text);
        return given->options.request.watch ? "" : "\"" + text + "\" is no duration like 5ba or 1ep";
      });
  swap->add_option("--carry", request.carry,
                   "what goes over from the old plugin: a word that the slot knows");
  add(Verb::pause, "hold it at the next safe point");
  add(Verb::resume, "let a paused run go on");
  add(Verb::checkpoint, "save a checkpoint at the next safe point");
  add(Verb::eval, "evaluate at the next safe point");
  add(Verb::stop, "end it in order at the next safe point");
}

void add_monitor(CLI::App& app, std::function<int()>& chosen) {
  struct Given {
    std::string run;
    bool once = false;
  };
  const auto given = std::make_shared<Given>();
  CLI::App* verb = app.add_subcommand("monitor", "follow a run in a terminal until it ends; q leaves");
  verb->add_option("run", given->run, "directory of the run, or its name below runs/")->required();
  verb->add_flag("--once", given->once, "print it once, as where the output is no terminal");
  verb->callback(
      [given, &chosen] { chosen = [given] { return monitor(given->run, given->once, std::cerr); }; });
}

void add_runs(CLI::App& app, std::function<int()>& chosen) {
  struct Given {
    std::string folder = "runs", format = "text";
  };
  const auto given = std::make_shared<Given>();
  CLI::App* verb = app.add_subcommand("runs", "list runs: state, steps, last validation");
  verb->add_option("folder", given->folder, "where to look (runs)");
  verb->add_option("--format", given->format, "text or json")->check(CLI::IsMember({"text", "json"}));
  verb->callback([given, &chosen] {
    chosen = [given] { return runs(given->folder, given->format == "json", std::cout, std::cerr); };
  });
}

}  // namespace

void add_live_verbs(CLI::App& app, std::function<int()>& chosen) {
  add_ctl(app, chosen);
  add_monitor(app, chosen);
  add_runs(app, chosen);
}

}  // namespace trainyard::cli
