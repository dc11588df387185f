// trainyard config show, schema, diff: shows, explains and compares run files.
#include <cstdio>

#include <trainyard/error.hpp>

#include "core/programs/programs.hpp"
#include "core/runfile/json_schema.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/schema.hpp"

namespace trainyard::cli {
namespace {

struct ConfigArguments {
  RunFileOptions run_file;
  bool origins = false;
  std::string table;  ///< empty: all tables
  std::string format_of_schema = "text";
};

int show(ConfigArguments& given) {
  return with_run(given.run_file, [&](const RunFile& run) {
    std::fputs(config::toml_file(run.config.resolved, given.origins).c_str(), stdout);
    return 0;
  });
}

std::string schema_of(const ConfigArguments& given) {
  if (given.format_of_schema == "text") return config::schema_text(given.table);
  if (given.format_of_schema == "json") return config::schema_json(given.table);
  if (!given.table.empty())
    throw ConfigError("--format json-schema is of the whole run file: leave out " + given.table);
  return config::json_schema(plugins::Registry::scan(plugin_folders(given.run_file.plugin_folders)));
}

int schema(ConfigArguments& given) {
  std::fputs(schema_of(given).c_str(), stdout);
  return 0;
}

int diff_files(ConfigArguments& given) {
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

void add_config(Arguments verb, CommandLine& line) {
  const auto given = std::make_shared<ConfigArguments>();
  Arguments shown = verb.verb("show", "the resolved file, defaults filled in");
  add_run_file(shown, given->run_file);
  shown.flag("--origins", given->origins, "say where each value comes from");
  when_chosen(shown, line, given, show);
  Arguments keys = verb.verb("schema", "every key of the host with type, default and meaning");
  keys.add("table", given->table, "one table and those within it: optimizer, data.train").offers("table");
  keys.add("--format", given->format_of_schema,
           "text, json, or a JSON Schema for editors, of the plugins too")
      .one_of({"text", "json", "json-schema"});
  add_plugin_folders(keys, given->run_file);
  when_chosen(keys, line, given, schema);
  Arguments differences = verb.verb("diff", "keys in which two resolved run files differ");
  add_run_file(differences, given->run_file).exactly(2, "two run files");
  when_chosen(differences, line, given, diff_files);
}

}  // namespace trainyard::cli
