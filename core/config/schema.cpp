#include "core/config/schema.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/config/print.hpp"
#include "core/config/suggest.hpp"

namespace trainyard::config {
namespace {

/// Written like a sentence: key("workers", integer, "loader threads").by_default(0).range(0, 256).
struct KeyBuilder : Key {
  KeyBuilder(std::string name_, OptionType type_, std::string help_) {
    name = std::move(name_);
    type = type_;
    help = std::move(help_);
  }
  KeyBuilder&& by_default(Value value) && {
    fallback = std::move(value);
    return std::move(*this);
  }
  KeyBuilder&& needed() && {
    required = true;
    return std::move(*this);
  }
  KeyBuilder&& range(double low, double high) && {
    minimum = low;
    maximum = high;
    return std::move(*this);
  }
  KeyBuilder&& at_least(double low) && {
    minimum = low;
    return std::move(*this);
  }
  KeyBuilder&& above(double low) && {
    open_minimum = true;
    minimum = low;
    return std::move(*this);
  }
  KeyBuilder&& one_of(std::vector<std::string> values) && {
    choices = std::move(values);
    return std::move(*this);
  }
  KeyBuilder&& many() && {
    list = true;
    return std::move(*this);
  }
  KeyBuilder&& in(Units value) && {
    units = value;
    return std::move(*this);
  }
  KeyBuilder&& also(std::vector<std::string> names) && {
    synonyms = std::move(names);
    return std::move(*this);
  }
};

KeyBuilder key(std::string name, OptionType type, std::string help) {
  return {std::move(name), type, std::move(help)};
}

constexpr auto boolean = OptionType::boolean;
constexpr auto integer = OptionType::integer;
constexpr auto number = OptionType::number;
constexpr auto string = OptionType::string;
constexpr auto duration = OptionType::duration;

constexpr double largest_batch = 1 << 30;

Key batch_size(const char* help) {
  return key("batch_size", integer, help).range(1, largest_batch).also({"batch", "bs", "batchsize"});
}

std::vector<Section> make_schema() {
  std::vector<Section> all;
  const auto table = [&](std::string path, std::string help, std::vector<Key> keys) -> Section& {
    all.push_back({.path = std::move(path), .help = std::move(help), .keys = std::move(keys)});
    return all.back();
  };
  const auto slot = [&](std::string path, std::string kind, std::string help,
                        std::vector<Key> keys = {}) -> Section& {
    Section& section = table(std::move(path), std::move(help), std::move(keys));
    section.kind = std::move(kind);
    return section;
  };
  const Key id = key("id", string, "name of the entry, unique in the list; its type without one");

  table("", "the file",
        {key("schema", integer, "version of the run file's keys").needed().range(1, 1),
         key("extends", string, "files that this one builds on, relative to it").many()});
  table("vars", "values for ${vars.NAME}", {});
  table(
      "run", "the run as a whole",
      {key("name", string, "name of the run; ${run.name}; the file's name without one"),
       key("seed", integer, "of every random stream").by_default(0).at_least(0),
       key("device", string, "cpu, cuda or cuda:N").by_default("cpu"),
       key("deterministic", string, "warn of, or refuse, operations that may differ from run to run")
           .by_default("off")
           .one_of({"off", "warn", "strict"}),
       key("output_dir", string, "folder of the run, relative to the working directory")
           .by_default("runs/${run.name}")
           .also({"output", "out_dir", "dir", "log_dir"}),
       key("resume", string,
           "never; auto: go on from the newest checkpoint of output_dir where there is one; must: the same, "
           "and refuse to begin anew; or the path of a run or a checkpoint to begin from")
           .by_default("never")
           .also({"autoresume", "resume_from_checkpoint", "load_path"}),
       key("load", string, "what is taken from the path of resume: the whole state, or the weights alone")
           .by_default("all")
           .one_of({"all", "weights"}),
       key("load_match", string,
           "patterns of the parameters that load = \"weights\" takes, * and ? allowed; all without one")
           .many(),
       key("data", string, "folder of the data; ${run.data}; TRAINYARD_DATA without one")});
  table("run.threads", "threads of LibTorch",
        {key("intra_op", integer, "within an operation; 0: LibTorch's choice").by_default(0).range(0, 4096),
         key("inter_op", integer, "between operations; 0: LibTorch's choice").by_default(0).range(0, 4096)});
  table("plugins", "where plugins come from besides the host's own",
        {key("paths", string, "folders to look in, relative to the file").many()});
  slot("model", "model", "the network").required = true;
  slot("model.dropout", "dropout", "what fills the dropout sites of the model; without it they do nothing");
  slot("loss", "loss", "what is minimised").required = true;
  slot("data", "dataset", "the data; options that all splits share",
       {key("workers", integer, "loader threads; 0: the loop's own")
            .by_default(0)
            .range(0, 256)
            .also({"num_workers"}),
        key("prefetch", integer, "batches ready ahead, per worker").by_default(2).range(1, 1024)})
      .required = true;
  table("data.train", "what is trained on; options of the dataset go here too",
        {batch_size("samples an optimizer step: micro_batch_size x accumulation"),
         key("global_batch_size", integer, "the same as batch_size").range(1, largest_batch),
         key("micro_batch_size", integer, "samples a forward pass; batch_size without one")
             .range(1, largest_batch),
         key("accumulation", integer, "micro-batches a step")
             .range(1, largest_batch)
             .also({"gradient_accumulation_steps", "grad_accum", "accumulate_grad_batches"}),
         key("shuffle", boolean, "another order each epoch").by_default(false),
         key("drop_last", boolean, "leave out a last batch that is not full").by_default(false)})
      .required = true;
  for (const char* split : {"val", "test"})
    table(std::string("data.") + split,
          std::string(split) == "val" ? "what is evaluated during training"
                                      : "what is evaluated after training",
          {batch_size("samples a forward pass; the training's micro_batch_size without one")});
  slot("data.sampler", "sampler",
       "order of the training samples; random with shuffle = true, else sequential");
  slot("metrics", "metric", "computed at every evaluation", {id}).list = true;
  slot("optimizer", "optimizer", "how parameters are updated").required = true;
  slot("schedule", "schedule", "how the learning rate moves").default_types = {"constant"};
  table("trainer", "the loop",
        {key("max_duration", duration, "length of the training")
             .needed()
             .above(0)
             .in(Units::length)
             .also({"epochs", "max_epochs", "num_epochs", "max_steps", "steps"}),
         key("max_wall_time", duration, "the training ends early when it is up").above(0).in(Units::time),
         key("eval_interval", duration, "time between evaluations; at the end only without one")
             .above(0)
             .in(Units::progress)
             .also({"eval_every", "val_interval", "check_val_every_n_epoch"}),
         key("precision", string, "arithmetic of forward and backward")
             .by_default("fp32")
             .one_of({"fp32", "bf16-mixed", "fp16-mixed"})
             .also({"amp", "dtype"})})
      .required = true;
  table("trainer.grad_clip", "bound on the gradient",
        {key("type", string, "of the norm of the whole gradient, or of each value")
             .by_default("norm")
             .one_of({"norm", "value"}),
         key("max", number, "the bound").needed().above(0).also({"max_norm", "value"})});
  slot("checkpoint", "checkpointer", "how the state of the run reaches the disk").default_types = {"full"};
  table(
      "early_stopping", "ends a training that no longer improves",
      {key("metric", string, "\"val/loss\" or \"val/\" and the id of a metric").needed().also({"monitor"}),
       key("mode", string, "whether lower or higher is better").needed().one_of({"min", "max"}),
       key("patience", integer, "evaluations without improvement before the end").by_default(5).range(1, 1e6),
       key("min_delta", number, "smallest change that is an improvement").by_default(0.0).at_least(0)});
  table(
      "guard", "plugins that misbehave",
      {key("deadline", duration, "for one call into a plugin; 0s: none")
           .by_default("60s")
           .at_least(0)
           .in(Units::time),
       key("on_deadline", string, "when a call takes longer: it is told, or the run ends")
           .by_default("warn")
           .one_of({"warn", "abort"}),
       key("nan", string,
           "when a hook writes a value that is not finite: the run ends, goes on without the plugin, or goes "
           "back to the last checkpoint; weights that are not finite at a checkpoint or at the end have no "
           "hook to blame and end the run; off: nobody looks")
           .by_default("abort")
           .one_of({"off", "abort", "disable", "rollback"}),
       key("strict_state", boolean, "find writes that hooks did not declare; slow").by_default(false)});
  table("logging", "what is told about the run",
        {key("interval", duration, "between records of training metrics")
             .by_default("50ba")
             .above(0)
             .in(Units::progress)});
  Section& sinks = slot("logging.sinks", "sink", "where records go", {id});
  sinks.list = true;
  sinks.default_types = {"console", "jsonl", "tensorboard"};
  slot("rules", "rule", "what watches the run's tensors and metrics", {id}).list = true;
  slot("recorder", "recorder", "what takes tensors out of the run, for the rules and for later")
      .default_types = {"trial"};
  slot("hooks", "hook", "plugins that fill no slot",
       {id,
        key("every", duration, "how often it is called, instead of its own cadence")
            .above(0)
            .in(Units::progress),
        key("priority", integer, "low first; instead of its own, 50 by default").range(0, 100),
        key("before", string, "ids or plugins whose hooks come later").many(),
        key("after", string, "ids or plugins whose hooks come first").many(),
        key("on_error", string, "when it throws: the run ends, or goes on without it")
            .by_default("abort")
            .one_of({"abort", "disable"})})
      .list = true;
  table(
      "swap",
      "another plugin, or other options, in a slot from a step of the run on; options go here too, or into a "
      "table `options`: one that is called as a key below is",
      {key("at", duration, "when, at the first safe point that is not before it")
           .needed()
           .in(Units::progress),
       key("slot", string, "the slot: optimizer, model.dropout, hooks.ID").needed(),
       key("type", string, "the plugin that takes over; the same one, with other options, without it"),
       key("carry", string,
           "what takes over from the old one: its state, nothing, or of a schedule: restart (begins anew "
           "over "
           "the rest of the run), splice (scaled such that the factor does not jump)")
           .by_default("state")
           .one_of({"state", "fresh", "restart", "splice"}),
       key("watch", duration, "length for which the run goes back to before the swap if anything fails")
           .by_default("5ba")
           .in(Units::progress)})
      .list = true;
  return all;
}

std::string default_text(const OptionSpec& spec) {
  if (spec.required) return "required";
  return spec.fallback ? toml_text(*spec.fallback) : "";
}

std::string allowed_text(const OptionSpec& spec) {
  return spec.choices.empty() ? range_text(spec) : join(spec.choices, " | ");
}

}  // namespace

const std::vector<Section>& schema() {
  static const std::vector<Section> all = make_schema();
  return all;
}

const Section& section(std::string_view path) {
  for (const Section& section : schema())
    if (section.path == path) return section;
  assert(false && "no such section");
  return schema().front();
}

std::vector<const Section*> children(std::string_view path) {
  std::vector<const Section*> result;
  for (const Section& section : schema()) {
    const std::size_t dot = section.path.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : section.path.substr(0, dot);
    if (!section.path.empty() && parent == path) result.push_back(&section);
  }
  return result;
}

bool has_child(const Section& section, std::string_view name) {
  const std::vector<const Section*> within = children(section.path);
  return std::any_of(within.begin(), within.end(),
                     [&](const Section* child) { return name_of(*child) == name; });
}

std::vector<OptionSpec> specs_of(const Section& section) {
  return {section.keys.begin(), section.keys.end()};
}

std::string name_of(const Section& section) {
  return section.path.substr(section.path.rfind('.') + 1);
}

std::string header(const Section& section) {
  if (section.path.empty()) return "the run file";
  return section.list ? "[[" + section.path + "]]" : "[" + section.path + "]";
}

std::string range_text(const OptionSpec& spec) {
  const auto text = [](double bound) {
    // Bounds are doubles; most are whole numbers and read better as such.
    return std::abs(bound) < 1e15 && bound == std::floor(bound)
               ? std::to_string(static_cast<std::int64_t>(bound))
               : toml_text(Value(bound));
  };
  const std::string low = spec.minimum ? (spec.open_minimum ? "> " : ">= ") + text(*spec.minimum) : "";
  const std::string high = spec.maximum ? (spec.open_maximum ? "< " : "<= ") + text(*spec.maximum) : "";
  return low.empty() || high.empty() ? low + high : low + " and " + high;
}

std::string type_text(const OptionSpec& spec) {
  if (!spec.plugins.empty()) return "list of " + spec.plugins + " plugins";
  const std::string name(option_type_names[static_cast<std::size_t>(spec.type)]);
  return spec.list ? "list of " + name + "s" : name;
}

std::string schema_text() {
  std::string out;
  for (const Section& section : schema()) {
    if (!section.path.empty()) {
      out += "\n" + header(section) + "  # " + section.help;
      if (section.required) out += "; required";
      out += "\n";
    }
    if (!section.kind.empty()) {
      out += "  type: name of a " + section.kind + " plugin";
      out += section.default_types.empty() ? "\n" : " (default " + join(section.default_types) + ")\n";
    }
    for (const Key& key : section.keys) {
      out += "  " + key.name + ": " + type_text(key);
      if (const std::string allowed = allowed_text(key); !allowed.empty()) out += ", " + allowed;
      if (const std::string value = default_text(key); !value.empty())
        out += key.required ? " (required)" : " (default " + value + ")";
      out += "\n      " + key.help + "\n";
    }
  }
  return out;
}

std::string schema_json() {
  using Json = nlohmann::ordered_json;
  Json sections = Json::array();
  for (const Section& section : schema()) {
    Json keys = Json::array();
    for (const Key& key : section.keys) {
      Json entry = {
          {"name", key.name}, {"type", type_text(key)}, {"required", key.required}, {"help", key.help}};
      if (key.fallback) entry["default"] = toml_text(*key.fallback);
      if (!key.choices.empty()) entry["choices"] = key.choices;
      if (const std::string range = range_text(key); !range.empty()) entry["range"] = range;
      keys.push_back(std::move(entry));
    }
    sections.push_back({{"table", section.path},
                        {"list", section.list},
                        {"required", section.required},
                        {"plugin_kind", section.kind},
                        {"default_types", section.default_types},
                        {"help", section.help},
                        {"keys", std::move(keys)}});
  }
  return Json{{"schema", 1}, {"tables", std::move(sections)}}.dump(2);
}

}  // namespace trainyard::config
