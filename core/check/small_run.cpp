#include "core/check/small_run.hpp"

#include <algorithm>
#include <map>

#include "core/plugins/kinds.hpp"
#include "core/runfile/print.hpp"
#include "lib/escapes.hpp"

namespace trainyard::check {
namespace {

/// The table of a kind; `list` says that it is one of several.
struct Slot {
  std::string table;
  bool list;
};

Slot slot(const std::string& kind) {
  const plugins::KindRow* row = plugins::find_kind(kind);
  return {std::string(row->section), row->place == plugins::KindRow::Place::list};
}

/// Returns all ways to fill in required options, at most `limit`.
std::vector<std::string> fillings(const std::vector<OptionSpec>& options, const Surroundings& host,
                                  const Materials& materials, std::size_t limit) {
  std::vector<std::string> texts = {""};
  for (const OptionSpec& option : options) {
    if (!option.required) continue;
    std::vector<std::string> longer;
    for (const std::string& text : texts)
      for (const std::string& value : candidates(option, host, materials))
        if (longer.size() < limit) longer.push_back(text + option.name + " = " + value + "\n");
    texts = std::move(longer);
  }
  return texts;
}

/// Returns at most four ways to fill in required options of a plugin that is part of another. A part that has
/// parts itself gets none.
std::vector<std::string> as_part(const std::vector<OptionSpec>& options, const Surroundings& host,
                                 const Materials& materials) {
  for (const OptionSpec& option : options)
    if (option.required && !option.plugins.empty()) return {""};
  std::vector<std::string> texts = fillings(options, host, materials, 4);
  for (std::string& text : texts) {
    if (text.empty()) continue;
    text.pop_back();
    std::replace(text.begin(), text.end(), '\n', ',');
    text = ", " + text;
  }
  return texts;
}

/// Adds one option that is not required: a switch flipped, a file, or a list of sizes.
std::vector<std::string> with_one_more(const std::string& filling, const plugins::PluginFile& plugin,
                                       const Surroundings& host, const Materials& materials) {
  std::vector<std::string> tries;
  for (const OptionSpec& option : plugin.manifest.options) {
    const bool flag = option.type == OptionType::boolean && option.fallback && !option.list;
    if (option.required || !(flag || (option.list ? option.type == OptionType::integer : option.file)))
      continue;
    for (const std::string& value : candidates(option, host, materials))
      if (!flag || value != (option.fallback->as<bool>() ? "true" : "false"))
        tries.push_back(filling + option.name + " = " + value + "\n");
  }
  return tries;
}

/// Makes large default sizes of samples small, such as a vocabulary's, so that a step is short.
std::string small_sizes(const plugins::PluginFile& plugin) {
  constexpr std::int64_t large = 1000, small = 32;
  std::string text;
  if (plugin.manifest.kind != "dataset") return text;
  for (const OptionSpec& option : plugin.manifest.options)
    if (option.type == OptionType::integer && !option.list && option.fallback &&
        option.fallback->as<std::int64_t>() > large && option.minimum.value_or(0.0) <= small)
      text += option.name + " = " + std::to_string(small) + "\n";
  return text;
}

/// Returns the tables of a run of the surroundings alone.
std::map<std::string, std::string> tables_of(const Surroundings& host) {
  std::map<std::string, std::string> tables = {{"model", host.model},
                                               {"loss", host.loss},
                                               {"data", host.data},
                                               {"optimizer", "type = \"sgd\"\nlr = 0.05\n"},
                                               {"logging", "interval = \"2ba\"\n"}};
  if (!host.executor.empty()) tables["executor"] = host.executor;
  if (!host.transform.empty()) tables["transforms"] = host.transform;
  return tables;
}

/// Returns the tables as TOML; `list` is the table that is one of several.
std::string toml(const std::map<std::string, std::string>& tables, const std::string& list) {
  std::string text =
      "schema = 1\n[run]\noutput_dir = \"run\"\nseed = 5\ndeterministic = \"strict\"\n"
      "threads = { intra_op = 1, inter_op = 1 }\n"
      "[trainer]\nmax_duration = \"2ep\"\neval_interval = \"1ep\"\n";
  for (const auto& [name, lines] : tables) {
    const bool is_list = name == list || name == "transforms";
    text += (is_list ? "[[" : "[") + name + (is_list ? "]]\n" : "]\n") + lines;
  }
  return text;
}

}  // namespace

std::vector<std::string> candidates(const OptionSpec& option, const Surroundings& host,
                                    const Materials& materials) {
  const auto bracketed = [&](std::vector<std::string> texts) {
    if (option.list)
      for (std::string& text : texts) text = "[" + text + "]";
    return texts;
  };
  const double low = option.minimum.value_or(0.0), high = option.maximum.value_or(low + 1.0);
  switch (option.type) {
    case OptionType::boolean: return bracketed({"true", "false"});
    case OptionType::integer:
      if (option.list) return {host.widths, "[4]"};
      return {std::to_string(static_cast<std::int64_t>(low) + (option.open_minimum ? 1 : 0)), "8"};
    case OptionType::number:
      return bracketed({config::toml_text(Value(std::min(low + 0.01, (low + high) / 2)))});
    case OptionType::duration: return bracketed({"\"1ep\""});
    case OptionType::string: {
      std::vector<std::string> texts;
      for (const std::string& choice : option.choices) texts.push_back(lib::toml_string(choice));
      if (option.metric || option.name == "metric")
        texts = {"\"val/loss\""};
      else if (texts.empty() && !option.file)
        texts = {"\"*\"", "\".*\""};  // a pattern of names, or an expression
      if (option.file)
        for (const std::string& file : materials.files) texts.push_back(lib::toml_string(file));
      return bracketed(texts);
    }
    case OptionType::table: {
      if (!option.plugins.empty()) {
        std::vector<std::string> texts;
        for (const plugins::PluginFile& file : materials.registry->files())
          if (file.manifest.kind == option.plugins && file.manifest.hooks.empty())
            for (const std::string& filling : as_part(file.manifest.options, host, materials))
              texts.push_back("{ type = " + lib::toml_string(file.manifest.name) + filling + " }");
        return bracketed(texts);
      }
      // Layers of a network are the most likely; otherwise the required fields are filled.
      const std::string outputs = host.widths.substr(host.widths.rfind(' ') + 1, host.widths.size());
      std::vector<std::string> texts;
      if (option.fields.empty() ||
          std::ranges::find(option.fields, "type", &OptionSpec::name) != option.fields.end())
        texts.push_back("{ type = \"flatten\" }, { type = \"linear\", out = " +
                        outputs.substr(0, outputs.size() - 1) + " }");
      for (const std::string& filling : fillings(option.fields, host, materials, 4)) {
        std::string line = filling.substr(0, filling.empty() ? 0 : filling.size() - 1);
        std::replace(line.begin(), line.end(), '\n', ',');
        texts.push_back("{ " + line + " }");
      }
      return bracketed(texts);
    }
  }
  return {};
}

std::optional<SmallRun> find_run(const plugins::PluginFile& plugin, const Materials& materials,
                                 const Refusal& refusal, std::string& reasons) {
  constexpr std::size_t most = 32;
  const auto open = materials.sets.empty() ? plugin.manifest.options : std::vector<OptionSpec>();
  const auto search = [&](const auto& ways) -> std::optional<SmallRun> {
    for (const Surroundings& host : surroundings())
      for (const std::string& filling : fillings(open, host, materials, most))
        for (const std::string& options : ways(filling, host)) {
          SmallRun run{&host, plugin, options};
          const std::string reason = refusal(run);
          if (reason.empty()) return run;
          reasons += host.name + ", " + options + ": " + reason + "\n";
        }
    return std::nullopt;
  };
  using Texts = std::vector<std::string>;
  const std::string sizes = small_sizes(plugin);
  std::optional<SmallRun> found;
  if (!sizes.empty())
    found = search([&](const std::string& filling, const Surroundings&) { return Texts{filling + sizes}; });
  if (!found)  // tries required options only
    found = search([](const std::string& filling, const Surroundings&) { return Texts{filling}; });
  if (!found)
    found = search([&](const std::string& filling, const Surroundings& host) {
      return with_one_more(filling, plugin, host, materials);
    });
  return found;
}

std::string SmallRun::text() const {
  const std::string kind = plugin.manifest.kind;
  std::map<std::string, std::string> tables = tables_of(*host);
  // A sampler sets the order itself.
  std::string& data = tables["data"];
  if (const std::size_t at = data.find(", shuffle = true"); kind == "sampler" && at != std::string::npos)
    data.erase(at, 16);
  if (kind == "dataset") data = "train = { batch_size = 8, shuffle = true }\nval = { batch_size = 8 }\n";
  const Slot place = slot(kind);
  const std::string own = "type = " + lib::toml_string(plugin.manifest.name) + "\n" + options;
  std::string& table = tables[place.table];
  table = kind == "dataset" ? own + table : own;
  if (kind == "rule") {  // applies it at every step
    table += "every = \"1ba\"\n";
    tables["recorder"] = "save = false\n";
  }
  // Two ranks act as two nodes, and parameters stay small: wider ones give other bits with two threads.
  for (const OptionSpec& option : plugin.manifest.options)
    if (needs_ranks(plugin) && (option.name == "min_compress_elements" || option.name == "local_world_size"))
      table += option.name + " = 1\n";
  if (kind != "sink") tables["logging"] += "sinks = []\n";
  return toml(tables, place.list ? place.table : "");
}

std::string SmallRun::without_plugin() const {
  std::map<std::string, std::string> tables = tables_of(*host);
  tables["logging"] += "sinks = []\n";
  return toml(tables, "");
}

std::string missing_file(const plugins::PluginFile& plugin, const Materials& materials) {
  const auto missing = [&](const OptionSpec& option) { return option.required && option.file; };
  const auto option = std::ranges::find_if(plugin.manifest.options, missing);
  return option == plugin.manifest.options.end() || !materials.sets.empty() ? ""
                                                                            : set_path(plugin, option->name);
}

bool needs_ranks(const plugins::PluginFile& plugin) {
  return std::ranges::count(plugin.manifest.needs, "distributed") > 0;
}

std::string set_path(const plugins::PluginFile& plugin, const std::string& option) {
  const Slot place = slot(plugin.manifest.kind);
  return place.table + (place.list ? ".0." : ".") + option;
}

std::string title(const plugins::PluginFile& plugin) {
  return plugin.manifest.kind + " " + plugin.manifest.name;
}

}  // namespace trainyard::check
