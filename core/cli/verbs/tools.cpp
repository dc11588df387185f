// trainyard tools: lists tools. trainyard NAME: runs one, with the options of its manifest.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <string_view>

#include "core/cli/columns.hpp"
#include "core/cli/engine_library.hpp"
#include "core/cli/run_state.hpp"
#include "core/cli/verbs/verbs.hpp"
#include "core/runfile/option_text.hpp"
#include "core/runfile/print.hpp"

namespace trainyard::cli {
namespace {

using plugins::PluginFile;

/// Options of every tool; a manifest's option of the same name can only be given by --set tools.0.NAME.
constexpr std::string_view host_options[] = {"set", "plugins", "format", "weights", "help"};

/// The option of a tool that takes the words behind the run (tool.hpp).
constexpr std::string_view data_option = "data";

struct ToolsArguments {
  RunFileOptions run_file;
  Format format = Format::text;
  std::string weights;
  std::vector<std::string> words;  ///< words after the run, for a tool that takes data
};

std::vector<const PluginFile*> tools_of(const plugins::Registry& registry) {
  std::vector<const PluginFile*> tools;
  for (const std::string& name : registry.names("tool")) tools.push_back(registry.find("tool", name).front());
  return tools;
}

int list(RunFileOptions& given) {
  const auto registry = plugins::Registry::scan(plugin_folders(given.plugin_folders));
  std::vector<std::vector<std::string>> rows;
  for (const PluginFile* tool : tools_of(registry))
    rows.push_back({tool->manifest.name, tool->manifest.summary});
  print_columns(rows, "", std::cout);
  return 0;
}

/// Replaces "net.onnx" by the run file model/onnx.toml in a folder of plugins, with the path as vars.file.
void stand_in(ToolsArguments& verb) {
  RunFileOptions& given = verb.run_file;
  const std::filesystem::path path = given.files.front();
  const std::string ending = path.extension().string();
  if (ending.size() < 2 || ending == ".toml") return;
  for (const std::string& folder : plugin_folders(given.plugin_folders)) {
    const std::string file = folder + "/model/" + ending.substr(1) + ".toml";
    if (!std::filesystem::exists(file)) continue;
    given.files.front() = file;
    const auto set = [](const char* key, const std::filesystem::path& value) {
      return key + config::toml_text(Value(value.string()));
    };
    given.sets.insert(given.sets.begin(),
                      {set("vars.file=", std::filesystem::absolute(path)), set("run.name=", path.stem())});
    if (verb.weights.empty()) verb.weights = "initial";
    return;
  }
}

/// Sorts the words after the run: run files are laid over it, and the rest is passed to the tool.
void take_words(ToolsArguments& given) {
  Array words;
  for (const std::string& word : given.words)
    if (word.ends_with(".toml"))
      given.run_file.files.push_back(word);
    else
      words.emplace_back(word);
  if (!words.empty())
    given.run_file.sets.push_back("tools.0." + std::string(data_option) + "=" +
                                  config::toml_text(Value(std::move(words))));
}

int run_tool(ToolsArguments& given) {
  given.run_file.trains = false;
  stand_in(given);
  take_words(given);
  return with_run(given.run_file, [&](const RunFile& run) {
    return engine().tool(run.config, run.registry, given.weights, given.format == Format::json);
  });
}

/// Returns the plugins that the command line may mean, before it is parsed: those of its --plugins, and of
/// the run files among its words.
plugins::Registry registry_of(const CommandLine& line) {
  std::vector<std::string> given, files;
  for (std::size_t i = 1; i < line.words.size(); ++i) {
    const std::string& word = line.words[i];
    std::error_code error;
    if (word == "--plugins" && i + 1 < line.words.size())
      given.push_back(line.words[++i]);
    else if (word.starts_with("--plugins="))
      given.push_back(word.substr(word.find('=') + 1));
    else if (const std::string file = run_file_of(word);
             file.ends_with(".toml") && std::filesystem::is_regular_file(file, error))
      files.push_back(file);
  }
  std::vector<std::string> of_run;
  if (!files.empty())
    of_run = config::plugin_paths(config::load(files, {}, config::Environment::of_process("../shared/data")));
  return plugins::Registry::scan(plugin_folders(given, of_run));
}

/// Adds an option: "--to" acts like `--set tools.0.to=torch`; a text is taken as it stands.
void add_option(Arguments& verb, ToolsArguments& given, const OptionSpec& option) {
  const bool text = option.type == OptionType::string && !option.list;
  const auto take = [&given, text,
                     name = option.name](const std::string& word) -> std::optional<std::string> {
    given.run_file.sets.push_back("tools.0." + name + "=" + (text ? config::toml_text(Value(word)) : word));
    return std::nullopt;
  };
  std::string help = option.help + " (" + config::type_text(option);
  if (const std::string allowed = config::allowed_text(option); !allowed.empty()) help += ", " + allowed;
  if (const std::string value = config::default_text(option); !value.empty()) help += "; " + value;
  verb.add("--" + option.name, take, help + ")");
}

void add_tool(Arguments command, CommandLine& line, const ManifestData& manifest) {
  Arguments verb = command.verb(manifest.name, manifest.summary);
  const auto given = std::make_shared<ToolsArguments>();
  given->run_file.tool = manifest.name;
  const auto words = std::ranges::find(manifest.options, data_option, &OptionSpec::name);
  const std::string run_help =
      "run file, a run (its directory or name), or network.onnx with the weights that it has";
  if (words == manifest.options.end()) {
    verb.add("run", given->run_file.files, run_help + "; further run files are laid over it")
        .required()
        .run_file();
  } else {
    given->run_file.files.resize(1);
    verb.add("run", given->run_file.files.front(), run_help).required().run_file();
    verb.add(words->name, given->words, words->help + "; run files among them are laid over the run");
  }
  add_set(verb, given->run_file);
  add_plugin_folders(verb, given->run_file);
  add_format(verb, given->format);
  verb.add("--weights", given->weights,
           "safetensors file, checkpoint or run directory; \"best\", the run's best checkpoint; \"initial\", "
           "what the model begins with; by default what the run ended with, while it is not complete its "
           "newest checkpoint, and of a network.onnx its own");
  for (const OptionSpec& option : manifest.options) {
    const bool taken = std::ranges::find(host_options, option.name) != std::end(host_options);
    if (!taken && option.name != data_option) add_option(verb, *given, option);
  }
  when_chosen(verb, line, given, run_tool);
}

}  // namespace

void add_tools(Arguments verb, CommandLine& line) {
  const auto given = std::make_shared<RunFileOptions>();
  add_plugin_folders(verb, *given);
  when_chosen(verb, line, given, list);
}

void add_tools_of_plugins(Arguments command, CommandLine& line) {
  const plugins::Registry registry = registry_of(line);
  for (const PluginFile* tool : tools_of(registry)) add_tool(command, line, tool->manifest);
}

}  // namespace trainyard::cli
