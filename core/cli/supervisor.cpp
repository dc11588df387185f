#include "core/cli/supervisor.hpp"

#include <csignal>
#include <cstdio>
#include <fstream>
#include <optional>

#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

#include "core/cli/child.hpp"
#include "core/plugins/kinds.hpp"
#include "core/rundir/quarantine.hpp"
#include "core/rundir/run_directory.hpp"
#include "lib/read_file.hpp"

namespace trainyard::control {
namespace {

void say(const std::string& message) {
  std::fprintf(stderr, "trainyard: supervisor: %s\n", message.c_str());
}

End wait_for(pid_t child, const HeldSignals& signals) {
  End end{child};
  for (;;) {
    if (const pid_t done = waitpid(child, &end.status, WNOHANG); done == child) return end;
    const int number = signals.next();
    if (number == SIGCHLD) continue;
    end.asked = end.asked || number != SIGUSR1;
    kill(child, number);
  }
}

/// Returns the plugin that the report of that process blames; nothing without a report, or without blame.
std::optional<Quarantined> culprit(const std::string& directory, pid_t child) {
  std::ifstream file(directory + "/report.json");
  if (!file) return std::nullopt;
  const auto report = nlohmann::json::parse(file, nullptr, false);
  const auto whole = [&](const char* key) {
    const auto found = report.find(key);
    return found != report.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
  };
  if (!report.is_object() || whole("pid") != child) return std::nullopt;
  const auto text = [&](const char* key) {
    const auto found = report.find(key);
    return found != report.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  Quarantined plugin{.plugin = text("plugin"),
                     .slot = text("slot"),
                     .kind = text("kind"),
                     .digest = text("digest"),
                     .event = text("event"),
                     .step = whole("step"),
                     .reason = text("cause") == "signal" ? text("signal") : text("error"),
                     .time = report::timestamp()};
  if (text("cause") == "hang") plugin.reason = "a call that did not return";
  if (plugin.digest.empty()) return std::nullopt;
  return plugin;
}

std::string last_checkpoint(const std::string& directory) {
  return lib::read_file(directory + "/checkpoints/latest").value_or("");
}

bool quarantined_before(const std::string& directory, const Quarantined& plugin) {
  for (const Quarantined& each : read_quarantine(directory))
    if (each.digest == plugin.digest && each.plugin == plugin.plugin && each.kind == plugin.kind) return true;
  return false;
}

}  // namespace

int supervise(const Supervised& supervised) {
  const HeldSignals signals;
  std::string checkpoint = last_checkpoint(supervised.directory);
  auto pause = supervised.pause;
  for (int restarts = 0;; ++restarts) {
    const End end = wait_for(start(restarts == 0 ? supervised.first : supervised.again, signals), signals);
    if (end.asked) return end.code();
    // An error of a plugin, or a non-finite value that it made, is also a reason to go on without it.
    const bool of_plugin =
        end.code() == static_cast<int>(ExitCode::plugin) || end.code() == static_cast<int>(ExitCode::numeric);
    if (!end.crashed() && !of_plugin) return end.code();
    const std::optional<Quarantined> found = culprit(supervised.directory, end.child);
    if (!end.crashed() && !found) return end.code();

    if (found) {
      const std::string who = "[" + found->slot + "] " + found->plugin +
                              (found->event.empty() ? "" : ", event " + found->event) + ", step " +
                              std::to_string(found->step) + ": " + found->reason;
      if (!plugins::can_be_left_out(found->kind)) {
        say(who + "; the run cannot do without " + found->slot + ", so it ends here");
        return static_cast<int>(ExitCode::plugin);
      }
      if (quarantined_before(supervised.directory, *found)) {
        say(who + "; it was quarantined before and ran all the same, so the run ends here");
        return static_cast<int>(ExitCode::plugin);
      }
      quarantine(supervised.directory, *found);
      say(who + "; it is quarantined");
    } else {
      const std::string now = last_checkpoint(supervised.directory);
      if (now == checkpoint) {
        say("the training " + end.text() +
            ", no plugin is blamed, and there is no newer checkpoint than before: "
            "starting it again would lead here again");
        return end.code();
      }
      say("the training " + end.text() + "; no plugin is blamed");
    }
    checkpoint = last_checkpoint(supervised.directory);
    if (restarts == supervised.most_restarts) {
      say("that was the " + std::to_string(restarts + 1) + "th time; the run ends here");
      return end.code();
    }
    say("it goes on from " +
        (checkpoint.empty() ? "the beginning" : "checkpoint " + checkpoint.substr(0, checkpoint.find('\n'))));
    if (const int number = signals.next(pause); number != 0 && number != SIGCHLD) return 128 + number;
    pause *= 2;
  }
}

}  // namespace trainyard::control
