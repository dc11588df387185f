// trainyard config show, schema, diff: run files, shown, explained, compared.
#include <cstdio>

#include "core/cli/verbs/verb.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/schema.hpp"

namespace trainyard::cli {

namespace {

struct Given {
  RunFileOptions run_file;
  Format format = Format::text;
  bool origins = false;
};

int show(Given& given) {
  return with_run(given.run_file, [&](const RunFile& run) {
    std::fputs(config::toml_file(run.config.resolved, given.origins).c_str(), stdout);
    return 0;
  });
}

int schema(Given& given) {
  std::fputs((given.format == Format::json ? config::schema_json() : config::schema_text()).c_str(), stdout);
  return 0;
}

int diff(Given& given) {
  std::vector<Table> sides;
  for (const std::string& file : given.run_file.files) {
    RunFileOptions one = given.run_file;
    one.files = {file};
    const std::optional<RunFile> run = read_run_file(one);
    if (!run) return static_cast<int>(ExitCode::config);
    sides.push_back(run->config.resolved);
  }
  for (const config::Difference& each : config::diff(sides.at(0), sides.at(1)))
    std::printf("%s\n  - %s\n  + %s\n", each.key.c_str(), each.a.c_str(), each.b.c_str());
  return 0;
}

}  // namespace

void add_config(Arguments command, CommandLine& line) {
  Arguments verb = command.verb("config", "show, compare and explain run files");
  const auto given = std::make_shared<Given>();
  Arguments shown = verb.verb("show", "the resolved file, defaults filled in");
  add_run_file(shown, given->run_file);
  shown.flag("--origins", given->origins, "say where each value comes from");
  when_chosen(shown, line, given, show);
  Arguments keys = verb.verb("schema", "every key of the host with type, default and meaning");
  add_format(keys, given->format);
  when_chosen(keys, line, given, schema);
  Arguments differences = verb.verb("diff", "keys in which two resolved run files differ");
  add_run_file(differences, given->run_file).exactly(2, "two run files");
  when_chosen(differences, line, given, diff);
}

}  // namespace trainyard::cli
