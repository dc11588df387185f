#include "core/cli/ctl_verbs.hpp"

#include <sstream>
#include <vector>

#include <trainyard/error.hpp>

#include "core/cli/client.hpp"
#include "core/cli/columns.hpp"
#include "core/cli/prometheus.hpp"
#include "core/cli/run_state.hpp"
#include "core/cli/time_text.hpp"
#include "lib/printed.hpp"
#include "lib/words.hpp"

namespace trainyard::cli {
namespace {

using control::Json;
using control::Status;

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
    out << result_text(options, run, client.ask(options.request, options.timeout));
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

}  // namespace trainyard::cli
