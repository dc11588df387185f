// trainyard ctl: queries and controls a run that is going.
#include <iostream>

#include "core/cli/ctl_verbs.hpp"
#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {
namespace {

using control::Verb;

struct CtlArguments {
  CtlOptions options;
  Format format = Format::text;
  double timeout = 60.0;
};

int ask(CtlArguments& given) {
  given.options.json = given.format == Format::json;
  given.options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(given.timeout * 1e3));
  return ctl(given.options, std::cout, std::cerr);
}

}  // namespace

void add_ctl(Arguments command, CommandLine& line) {
  const auto given = std::make_shared<CtlArguments>();
  Arguments verb = command.verb("ctl", "ask and steer a run that is going");
  verb.fall_through();
  verb.footer("Exit codes: 0 done, 1 no run answers, 2 the run refuses.");
  verb.add("run", given->options.run, "directory of the run, or its name below runs/")
      .required()
      .offers("run");
  verb.add("--timeout", given->timeout, "seconds to wait for the answer (60)").within(0.001, 1e6);
  add_format(verb, given->format);

  const auto add = [&](Verb what, const char* help) {
    Arguments added = verb.verb(std::string(name(what)), help);
    added.fall_through();
    added.when_chosen([given, what, &line] {
      given->options.request.verb = what;
      line.chosen = [given] { return ask(*given); };
    });
    return added;
  };
  control::Request& request = given->options.request;
  add(Verb::status, "what it does, how far it is, what fills its slots");
  add(Verb::set, "change options: set optimizer.lr=3e-4")
      .add("assignments", request.assignments, "KEY=VALUE, as after --set")
      .required()
      .offers("setting");
  Arguments swap = add(Verb::swap, "put another plugin in a slot: swap schedule cosine min_factor=0.1");
  swap.add("slot", request.slot, "place in the run file: schedule, model.dropout").required().offers("slot");
  swap.add("type", request.type, "name of the plugin").required().offers("type");
  swap.add("assignments", request.assignments, "options of the plugin: KEY=VALUE").offers("option");
  const auto watch = [given](const std::string& text) -> std::optional<std::string> {
    given->options.request.watch = Duration::parse(text);
    if (given->options.request.watch) return std::nullopt;
    return "\"" + text + "\" is no duration like 5ba or 1ep";
  };
  swap.add("--watch", watch, "go back if it fails within this duration: 5ba");
  swap.add("--carry", request.carry, "what goes over from the old plugin: a word that the slot knows");
  Arguments metrics = verb.verb("metrics", "its status as Prometheus' text format, for a scraper");
  metrics.fall_through();
  metrics.when_chosen([given, &line] {
    given->options.prometheus = true;
    line.chosen = [given] { return ask(*given); };
  });
  add(Verb::pause, "hold it at the next safe point");
  add(Verb::resume, "let a paused run go on");
  add(Verb::checkpoint, "save a checkpoint at the next safe point");
  add(Verb::eval, "evaluate at the next safe point");
  add(Verb::stop, "end it in order at the next safe point");
}

}  // namespace trainyard::cli
