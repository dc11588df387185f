// Adds options that several verbs take.
#include "core/cli/verb.hpp"

namespace trainyard::cli {

Argument add_run_file(Arguments verb, RunFileOptions& options) {
  Argument run = verb.add("run", options.files,
                          "run file, or a run: its directory or name; further files are laid over the first");
  add_set(verb, options);
  add_plugin_folders(verb, options);
  add_ranks(verb, options);
  return run.required().run_file();
}

void add_set(Arguments verb, RunFileOptions& options, const std::string& example) {
  verb.add("--set", options.sets, "change a key: --set " + example).one_at_a_time().offers("setting");
}

void add_plugin_folders(Arguments verb, RunFileOptions& options) {
  verb.add("--plugins", options.plugin_folders, "another folder of plugins").one_at_a_time().offers("folder");
}

void add_ranks(Arguments verb, RunFileOptions& options) {
  verb.add("--ranks", options.ranks, "processes of this machine that train together").within(1, 1024);
}

void add_format(Arguments verb, Format& format) {
  const auto take = [&format](const std::string& word) {
    format = word == "json" ? Format::json : Format::text;
    return std::nullopt;
  };
  verb.add("--format", take, "text or json").one_of({"text", "json"});
}

}  // namespace trainyard::cli
