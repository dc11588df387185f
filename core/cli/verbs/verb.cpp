// What several verbs take.
#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {

void add_run_file(CLI::App& verb, RunFileOptions& options) {
  verb.add_option("run", options.files, "run file; further ones are laid over the first")
      ->required()
      ->check(CLI::ExistingFile);
  add_set(verb, options);
  add_plugin_folders(verb, options);
}

void add_set(CLI::App& verb, RunFileOptions& options, const std::string& example) {
  verb.add_option("--set", options.sets, "change a key: --set " + example)->allow_extra_args(false);
}

void add_plugin_folders(CLI::App& verb, RunFileOptions& options) {
  verb.add_option("--plugins", options.plugin_folders, "another folder of plugins")->allow_extra_args(false);
}

void add_format(CLI::App& verb, Format& format) {
  verb.add_option_function<std::string>(
          "--format",
          [&format](const std::string& word) { format = word == "json" ? Format::json : Format::text; },
          "text or json")
      ->check(CLI::IsMember({"text", "json"}));
}

}  // namespace trainyard::cli
