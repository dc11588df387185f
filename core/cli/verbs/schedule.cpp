// trainyard schedule plot: shows the effect of a run's schedule.
#include "core/cli/schedule_verb.hpp"
#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {
namespace {

struct ScheduleArguments {
  RunFileOptions run_file;
  Format format = Format::text;
  std::string svg;
};

int plot(ScheduleArguments& given) {
  return with_run(given.run_file, [&](const RunFile& run) {
    return schedule_plot(run.config, run.registry, given.format, given.svg);
  });
}

}  // namespace

void add_schedule(Arguments command, CommandLine& line) {
  Arguments verb = command.verb("schedule", "look at schedules");
  Arguments plotted = verb.verb("plot", "learning rate and momentum over the steps of a run");
  const auto given = std::make_shared<ScheduleArguments>();
  add_run_file(plotted, given->run_file);
  add_format(plotted, given->format);
  plotted.add("--svg", given->svg, "file to draw them into, as an SVG");
  when_chosen(plotted, line, given, plot);
}

}  // namespace trainyard::cli
