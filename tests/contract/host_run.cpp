#include "contract/host_run.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "contract/process.hpp"
#include "core/engine/verbs/train_command.hpp"
#include "core/plugins/kinds.hpp"
#include "support/folder.hpp"
#include "support/onnx_file.hpp"
#include "support/png_file.hpp"
#include "support/run.hpp"

namespace trainyard::contract {
namespace {

const test::TempFolder& folder() {
  static const test::TempFolder made;
  return made;
}

std::string idx(const std::vector<int>& shape, int modulus) {
  std::string bytes = {0, 0, 8, static_cast<char>(shape.size())};
  std::size_t count = 1;
  for (const int length : shape) {
    bytes += {0, 0, static_cast<char>(length >> 8), static_cast<char>(length)};
    count *= static_cast<std::size_t>(length);
  }
  for (std::size_t i = 0; i < count; ++i)
    bytes += static_cast<char>(i * 7 % static_cast<std::size_t>(modulus));
  return bytes;
}

/// A folder of images of 4 x 4 in folders of ten classes.
std::string image_folder() {
  for (int row = 0; row < 24; ++row) {
    std::vector<std::uint8_t> pixels;
    for (int i = 0; i < 48; ++i) pixels.push_back(static_cast<std::uint8_t>(i * (row + 1) * 5 % 251));
    test::write_png(folder().path("images/" + std::to_string(row % 10) + "/" + std::to_string(row) + ".png"),
                    4, 4, 3, pixels);
  }
  return folder().path("images");
}

/// A small file of each format that a plugin may read: 16 features or an image, ten classes; clicks; rows of
/// few features; a network.
const std::vector<std::string>& sample_files() {
  static const std::vector<std::string> files = [] {
    std::string csv, cifar, text, clicks, sparse = "24 40 10\n";
    for (int row = 0; row < 24; ++row) {
      for (int column = 0; column < 16; ++column) csv += std::to_string((row * 5 + column * 3) % 11) + ",";
      csv += std::to_string(row % 10) + "\n";
      clicks += std::to_string(row % 2);
      for (int i = 0; i < 13; ++i) clicks += "\t" + std::to_string(row * i % 7);
      for (int i = 0; i < 26; ++i) clicks += "\t" + std::to_string(row * i % 5);
      clicks += "\n";
      sparse += std::to_string(row % 10) + " " + std::to_string(row % 10) + ":1 " + std::to_string(10 + row) +
                ":0.5\n";
      cifar += static_cast<char>(row % 10);
      for (int i = 0; i < 3072; ++i) cifar += static_cast<char>(i * (row + 1) % 251);
    }
    for (int i = 0; i < 4000; ++i) text += static_cast<char>('a' + i * i % 17);
    return std::vector<std::string>{image_folder(),
                                    folder().write("rows.csv", csv),
                                    folder().write("images.idx", idx({24, 4, 4}, 251)),
                                    folder().write("labels.idx", idx({24}, 10)),
                                    folder().write("records.bin", cifar),
                                    folder().write("text.txt", text),
                                    folder().write("clicks.tsv", clicks),
                                    folder().write("sparse.txt", sparse),
                                    folder().write("network.onnx", test::onnx_gemm(16, 10))};
  }();
  return files;
}

std::string quoted(const std::string& text) {
  return config::toml_text(Value(text));
}

/// The header of the table of a kind; `list`: one of several.
struct Slot {
  std::string table;
  bool list;
};

Slot slot(const std::string& kind) {
  const plugins::KindRow* row = plugins::find_kind(kind);
  REQUIRE(row != nullptr);
  return {std::string(row->section), row->place == plugins::KindRow::Place::list};
}

/// All ways to fill in the options that must be given; at most `limit`.
std::vector<std::string> fillings(const std::vector<OptionSpec>& options, const Surroundings& host,
                                  std::size_t limit) {
  std::vector<std::string> texts = {""};
  for (const OptionSpec& option : options) {
    if (!option.required) continue;
    std::vector<std::string> longer;
    for (const std::string& text : texts)
      for (const std::string& value : candidates(option, host))
        if (longer.size() < limit) longer.push_back(text + option.name + " = " + value + "\n");
    texts = std::move(longer);
  }
  return texts;
}

/// Ways to give a part of another plugin the options that it must have, at most four. One that is made of parts
/// itself gets none.
std::vector<std::string> as_part(const std::vector<OptionSpec>& options, const Surroundings& host) {
  for (const OptionSpec& option : options)
    if (option.required && !option.plugins.empty()) return {""};
  std::vector<std::string> texts = fillings(options, host, 4);
  for (std::string& text : texts) {
    if (text.empty()) continue;
    text.pop_back();
    std::replace(text.begin(), text.end(), '\n', ',');
    text = ", " + text;
  }
  return texts;
}

/// What keeps a run from training; empty: nothing.
std::string refusal(const HostRun& run) {
  if (needs_ranks(run.plugin)) {
    const Apart ranks(run.text());
    return ranks.train({}, 2) == 0 ? "" : ranks.said();
  }
  config::Resolution resolution = test::resolve(run.text());
  if (!resolution.config) return resolution.findings.text();
  try {
    test::BuiltRun built(std::move(*resolution.config));
    built->loop().fit();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

HostRun search(const plugins::PluginFile& plugin) {
  std::string reasons;
  // First with nothing but what must be given; then with one switch the other way, or a file.
  for (const bool switches : {false, true})
    for (const Surroundings& host : hosts())
      for (const std::string& filling : fillings(plugin.manifest.options, host, 32)) {
        std::vector<std::string> tries = {filling};
        if (switches) {
          tries.clear();
          for (const OptionSpec& option : plugin.manifest.options) {
            const bool flag = option.type == OptionType::boolean && option.fallback;
            if (option.required || option.list || !(flag || option.file)) continue;
            for (const std::string& value : candidates(option, host))
              if (!flag || value != (option.fallback->as<bool>() ? "true" : "false"))
                tries.push_back(filling + option.name + " = " + value + "\n");
          }
        }
        for (const std::string& options : tries) {
          HostRun run{&host, plugin, options};
          const std::string reason = refusal(run);
          if (reason.empty()) return run;
          reasons += host.name + ", " + options + ": " + reason + "\n";
        }
      }
  FAIL("nothing trains with the " << title(plugin)
                                  << "; if it reads a format of its own, add a small file of that format to "
                                     "sample_files() in tests/contract/host_run.cpp:\n"
                                  << reasons);
  return {};
}

}  // namespace

const std::vector<Surroundings>& hosts() {
  const std::string split = "train = { size = 24, batch_size = 8, shuffle = true }\nval = { size = 8 }\n";
  const auto synthetic = [&](const std::string& what) { return "type = \"synthetic\"\n" + what + split; };
  const auto mlp = [](const std::string& widths) { return "type = \"mlp\"\nlayers = " + widths + "\n"; };
  const std::string cross_entropy = "type = \"cross_entropy\"\n";
  static const std::vector<Surroundings> all = {
      {"classification", synthetic("kind = \"classification\"\nshape = [16]\nclasses = 10\n"),
       mlp("[16, 8, 10]"), cross_entropy, "[16, 8, 10]"},
      {"two classes", synthetic("kind = \"classification\"\nshape = [16]\nclasses = 2\n"), mlp("[16, 8, 1]"),
       "type = \"bce_with_logits\"\n", "[16, 8, 1]"},
      {"regression", synthetic("kind = \"regression\"\nshape = [16]\n"), mlp("[16, 8, 1]"),
       "type = \"mse\"\n", "[16, 8, 1]"},
      {"images", synthetic("kind = \"classification\"\nshape = [3, 32, 32]\nclasses = 10\n"),
       mlp("[3072, 8, 10]"), cross_entropy, "[3072, 8, 10]"},
      {"language", synthetic("kind = \"language\"\nseq_len = 6\nvocabulary = 9\n"),
       "type = \"gpt\"\nn_layer = 1\nn_head = 2\nd_model = 8\n", cross_entropy, "[9, 8, 9]"},
      {"convolutions", synthetic("kind = \"classification\"\nshape = [3, 8, 8]\nclasses = 10\n"),
       "type = \"sequential\"\nlayers = [{ type = \"conv2d\", out = 4, kernel = 3 }, { type = \"dropout\" }, "
       "{ type = \"global_average_pool\" }, { type = \"linear\", out = 10 }]\n",
       cross_entropy, "[192, 8, 10]"},
      {"clicks", "type = \"ctr\"\nrows = [3, 9, 20]\nfeatures = 4\n" + split,
       "type = \"dlrm\"\ndim = 2\nbottom = [4]\ntop = [4]\n", "type = \"bce_with_logits\"\n", "[4, 8, 1]"},
      {"recurrent language", synthetic("kind = \"language\"\nseq_len = 6\nvocabulary = 9\n"),
       "type = \"lstm\"\nn_layer = 1\nembedding = 4\nhidden = 8\n", cross_entropy, "[9, 8, 9]"},
      {"rows of few features",
       "type = \"xc\"\nlayout = \"synthetic\"\nfeatures = 40\nclasses = 10\n"
       "prototype = 6\nown = 4\nnoise = 3\n" +
           split,
       "type = \"slide\"\nhidden = 8\n", cross_entropy + "multi_label = true\n", "[40, 8, 10]"},
      // The edges of a subgraph serve any number of layers; what `graph` gives by itself is for three.
      {"nodes",
       "type = \"graph\"\nlayout = \"synthetic\"\nmode = \"subgraph\"\ndegree = true\n"
       "synthetic = { nodes = 60, edges = 200, features = 16, classes = 10 }\n"
       "train = { batch_size = 8, shuffle = true }\nval = { batch_size = 8 }\nkeep_in = " +
           quoted(folder().path("")) + "\n",
       "type = \"sage\"\nlayers = 3\nhidden = 8\n", cross_entropy, "[16, 8, 10]"},
      {"edges",
       "type = \"graph\"\nlayout = \"synthetic\"\ntask = \"edge\"\nnegatives = 3\nfanouts = [3, 3]\n"
       "shares = [0.2, 0.1, 0.7]\nsynthetic = { nodes = 60, edges = 200, features = 16 }\n"
       "train = { batch_size = 8, shuffle = true }\nval = { batch_size = 8 }\n",
       "type = \"sage\"\nhidden = 8\n", "type = \"bce_with_logits\"\n", "[16, 8, 4]"},
  };
  return all;
}

std::vector<std::string> candidates(const OptionSpec& option, const Surroundings& host) {
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
      for (const std::string& choice : option.choices) texts.push_back(quoted(choice));
      if (option.name == "metric")
        texts = {"\"val/loss\""};
      else if (texts.empty() && !option.file)
        texts = {"\"*\"", "\".*\""};  // a pattern of names, or an expression
      if (option.file)
        for (const std::string& file : sample_files()) texts.push_back(quoted(file));
      return bracketed(texts);
    }
    case OptionType::table: {
      if (!option.plugins.empty()) {
        std::vector<std::string> texts;
        for (const plugins::PluginFile& file : test::shipped().files())
          if (file.manifest.kind == option.plugins && file.manifest.hooks.empty())
            for (const std::string& filling : as_part(file.manifest.options, host))
              texts.push_back("{ type = " + quoted(file.manifest.name) + filling + " }");
        return bracketed(texts);
      }
      // Layers of a network, most likely; else what must be given.
      const std::string outputs = host.widths.substr(host.widths.rfind(' ') + 1, host.widths.size());
      std::vector<std::string> texts = {"{ type = \"flatten\" }, { type = \"linear\", out = " +
                                        outputs.substr(0, outputs.size() - 1) + " }"};
      for (const std::string& filling : fillings(option.fields, host, 4)) {
        std::string line = filling.substr(0, filling.empty() ? 0 : filling.size() - 1);
        std::replace(line.begin(), line.end(), '\n', ',');
        texts.push_back("{ " + line + " }");
      }
      return bracketed(texts);
    }
  }
  return {};
}

std::string HostRun::text() const {
  const std::string kind = plugin.manifest.kind;
  std::string data = host->data;
  // A sampler makes the order by itself.
  if (const std::size_t at = data.find(", shuffle = true"); kind == "sampler" && at != std::string::npos)
    data.erase(at, 16);
  if (kind == "dataset") data = "train = { batch_size = 8, shuffle = true }\nval = { batch_size = 8 }\n";
  std::map<std::string, std::string> tables = {{"model", host->model},
                                               {"loss", host->loss},
                                               {"data", data},
                                               {"optimizer", "type = \"sgd\"\nlr = 0.05\n"},
                                               {"logging", "interval = \"2ba\"\n"}};
  const Slot place = slot(kind);
  const std::string own = "type = " + quoted(plugin.manifest.name) + "\n" + options;
  std::string& table = tables[place.table];
  table = kind == "dataset" ? own + table : own;
  if (kind == "rule") {  // it looks at every step
    table += "every = \"1ba\"\n";
    tables["recorder"] = "save = false\n";
  }
  // Two ranks are two nodes, and parameters are small.
  for (const OptionSpec& option : plugin.manifest.options)
    if (needs_ranks(plugin) && (option.name == "min_compress_elements" || option.name == "local_world_size"))
      table += option.name + " = 1\n";
  if (kind != "sink") tables["logging"] += "sinks = []\n";
  std::string text = "schema = 1\n[run]\noutput_dir = " + quoted(folder().path("run")) +
                     "\nseed = 5\ndeterministic = \"strict\"\nthreads = { intra_op = 1, inter_op = 1 }\n"
                     "[trainer]\nmax_duration = \"2ep\"\neval_interval = \"1ep\"\n";
  for (const auto& [name, lines] : tables) {
    const bool list = place.list && name == place.table;
    text += (list ? "[[" : "[") + name + (list ? "]]\n" : "]\n") + lines;
  }
  return text;
}

bool needs_ranks(const plugins::PluginFile& plugin) {
  return std::ranges::count(plugin.manifest.needs, "distributed") > 0;
}

const std::vector<plugins::PluginFile>& alone() {
  static const std::vector<plugins::PluginFile> found = [] {
    std::vector<plugins::PluginFile> files = test::shipped().files();
    std::erase_if(files, [](const plugins::PluginFile& file) {
      return needs_ranks(file) || plugins::find_kind(file.manifest.kind)->is_verb;
    });
    return files;
  }();
  return found;
}

const HostRun& host_run(const plugins::PluginFile& plugin) {
  static std::map<std::string, HostRun> found;
  const auto known = found.find(plugin.path);
  return known != found.end() ? known->second : found.emplace(plugin.path, search(plugin)).first->second;
}

std::string set_path(const plugins::PluginFile& plugin, const std::string& option) {
  const Slot place = slot(plugin.manifest.kind);
  return place.table + (place.list ? ".0." : ".") + option;
}

std::string message_path(const plugins::PluginFile& plugin, const std::string& option) {
  const Slot place = slot(plugin.manifest.kind);
  return place.table + (place.list ? "[0]." : ".") + option;
}

std::string title(const plugins::PluginFile& plugin) {
  return plugin.manifest.kind + " " + plugin.manifest.name;
}

Outcome train_shortly(const std::string& text, const std::vector<std::string>& sets,
                      const plugins::Registry& registry) {
  config::RunConfig config = test::valid(text, sets, registry);
  const test::TempFolder runs;
  config.run.output_dir = runs.path("run");
  train::TrainOptions options;
  options.quiet = true;
  options.resolved_toml = config::toml_file(config.resolved);
  const int code = train::train_command(config, registry, options);
  Outcome outcome = outcome_of(config.run.output_dir);
  CHECK(outcome.exit_code == code);
  return outcome;
}

Outcome outcome_of(const std::string& run_folder) {
  const auto result = nlohmann::json::parse(test::read_file(run_folder + "/result.json"));
  const auto text_of = [](const nlohmann::json& value) {
    return value.is_null() ? "" : value.get<std::string>();
  };
  Outcome outcome;
  outcome.exit_code = result["exit_code"];
  outcome.model = text_of(result["digest"]["model"]);
  outcome.optimizer = text_of(result["digest"]["optimizer"]);
  outcome.error = text_of(result["error"]);
  outcome.steps = result["steps"];
  for (const std::string& line : test::lines(run_folder + "/journal.jsonl"))
    outcome.swaps += nlohmann::json::parse(line)["what"] == "swap";
  if (const auto loss = result["metrics"].find("val/loss");
      loss != result["metrics"].end() && loss->is_number())
    outcome.loss = *loss;
  return outcome;
}

}  // namespace trainyard::contract
