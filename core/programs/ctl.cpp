#include "core/programs/ctl.hpp"

#include <algorithm>
#include <iostream>
#include <sstream>
#include <vector>

#include <trainyard/error.hpp>

#include "core/cli/client.hpp"
#include "core/cli/columns.hpp"
#include "core/cli/run_state.hpp"
#include "core/plugins/kinds.hpp"
#include "core/programs/programs.hpp"
#include "core/programs/prometheus.hpp"
#include "core/programs/time_text.hpp"
#include "lib/printed.hpp"
#include "lib/words.hpp"

namespace trainyard::cli {
namespace {

using control::Json;
using control::Status;
using control::Verb;

constexpr int nobody = 1, refused = 2;

std::string result_text(const CtlOptions& options, const std::string& run, const Json& result) {
  if (options.prometheus) return prometheus_text(result.get<Status>());
  if (options.json) return result.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (options.request.verb != control::Verb::status) {
    const Json message = result.is_object() ? result.value("message", Json()) : Json();
    return printable(message.is_string() ? message.get<std::string>() : result.dump()) + "\n";
  }
  std::vector<std::string> journal;
  for (const std::string& line : last_lines(run + "/journal.jsonl", journal_lines))
    journal.push_back(journal_text(line));
  return status_text(result.get<Status>(), journal);
}

/// Gives a request to add or remove an entry of a list its slot. One that goes may be named by its place.
void name_entry(control::Client& client, const CtlOptions& options, control::Request& request) {
  const std::string list = std::string(plugins::find_kind(options.kind)->section) + ".";
  std::string id = request.verb == Verb::add ? request.type : request.slot;
  std::erase_if(request.assignments, [&](const std::string& each) {
    if (each.starts_with("id=")) id = each.substr(3);
    return each.starts_with("id=");
  });
  request.slot = list + id;
  if (request.verb == Verb::add || id.size() > 4 || id.find_first_not_of("0123456789") != id.npos) return;
  std::vector<std::string> entries;
  for (const Status::Slot& each : client.ask({.verb = Verb::status}, options.timeout).get<Status>().slots)
    if (each.slot.starts_with(list)) entries.push_back(each.slot);
  const bool named = std::ranges::find(entries, request.slot) != entries.end();
  if (!named && std::stoul(id) < entries.size()) request.slot = entries[std::stoul(id)];
}

}  // namespace

std::string status_text(const Status& status, const std::vector<std::string>& journal) {
  std::ostringstream out;
  std::vector<std::string> head = {printable(status.run), std::string(name(status.state)),
                                   "process " + std::to_string(status.pid)};
  std::string step = "step " + std::to_string(status.step);
  if (status.total_steps > 0) step += " of " + std::to_string(status.total_steps);
  std::vector<std::string> progress = {step, "epoch " + std::to_string(status.epoch),
                                       lib::rate_text(status.samples_per_second) + " samples/s",
                                       span_text(status.seconds) + " so far"};
  if (status.seconds_left) progress.push_back(span_text(*status.seconds_left) + " left");
  std::vector<std::string> metrics;
  for (const auto& [key, value] : status.metrics)
    metrics.push_back(printable(key) + " " + lib::metric_text(value));
  out << lib::join(head, "  ") << '\n' << lib::join(progress, "  ") << '\n';
  if (!metrics.empty()) out << lib::join(metrics, "  ") << '\n';
  out << "checkpoint  " << (status.last_checkpoint.empty() ? "none yet" : printable(status.last_checkpoint))
      << '\n';
  if (status.retired > 0) out << "retired plugins in memory  " << status.retired << '\n';
  if (!status.slots.empty()) out << '\n';
  if (!status.slots.empty()) print_columns(slot_rows(status), "", out);
  for (const std::string& line : time_lines(status.time)) out << line << '\n';
  if (!journal.empty()) out << "\njournal\n";
  for (const std::string& line : journal) out << "  " << line << '\n';
  return out.str();
}

int ctl(const CtlOptions& options, std::ostream& out, std::ostream& errors) {
  const std::string run = find_run(options.run);
  try {
    if (!holds_run(run)) look_at(run, {});  // throws what the folder holds
    control::Client client(run);
    control::Request request = options.request;
    if (!options.kind.empty()) name_entry(client, options, request);
    out << result_text(options, run, client.ask(std::move(request), options.timeout));
    return 0;
  } catch (const control::Refused& refusal) {
    errors << "trainyard ctl: the run refuses: " << printable(refusal.what()) << '\n';
    return refused;
  } catch (const control::NoAnswer& silence) {
    const RunState state = look_at(run, std::chrono::milliseconds(0));
    errors << "trainyard ctl: the run in '" << run << "' "
           << (going(state.life) ? "does not answer: " : "is not going: ")
           << (going(state.life) ? silence.what() : how_it_ended(state)) << '\n';
  } catch (const Error& error) {
    errors << "trainyard ctl: " << error.what() << '\n';
  } catch (const std::exception& error) {
    errors << "trainyard ctl: " << error.what() << '\n';
  }
  return nobody;
}

namespace {

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

void add_ctl(Arguments verb, CommandLine& line) {
  const auto given = std::make_shared<CtlArguments>();
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
  const std::vector<std::string> kinds = {"hook", "rule", "sink", "metric"};
  Arguments more =
      add(Verb::add, "put one more plugin at the end of a list: add hook ema decay=0.99 id=slow");
  more.add("kind", given->options.kind, "hook, rule, sink or metric").required().one_of(kinds);
  more.add("type", request.type, "name of the plugin").required().offers("type");
  more.add("assignments", request.assignments, "options of the plugin: KEY=VALUE; id=NAME names the entry");
  more.add("--watch", watch, "go back if it fails within this duration: 5ba");
  Arguments less = add(Verb::remove, "take a plugin out of a list: remove hook ema");
  less.add("kind", given->options.kind, "hook, rule, sink or metric").required().one_of(kinds);
  less.add("name", request.slot, "id of the entry, or its place in the list from 0 on").required();
  less.add("--watch", watch, "go back if the run fails within this duration: 5ba");
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
