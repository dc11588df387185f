// Run files that are right, and the tools around them: layers, references, defaults, printing, comparing.
#include <catch2/catch.hpp>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/runfile/changes.hpp"
#include "core/runfile/check.hpp"
#include "core/runfile/hook_order.hpp"
#include "core/runfile/parse.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/schema.hpp"
#include "core/runfile/suggest.hpp"
#include "front/run_files.hpp"

namespace config_tests {

using namespace trainyard;
using config::RunConfig;
using test::Folder;
using test::minimal;

namespace {

/// Uses every key of the host.
const std::string everything = R"(schema = 1
[vars]
width = 32
root = "${run.data}/digits"
[run]
name = "all ${vars.width}"
seed = 17
device = "cuda"
deterministic = "strict"
output_dir = "runs/$${x}/${run.name}"
data = "store"
threads = { intra_op = 2, inter_op = 1 }
[plugins]
paths = ["mine"]
[model]
type = "mlp"
layers = [64, "${vars.width}", 10]
[model.dropout]
type = "standard"
p = 0
[loss]
type = "cross_entropy"
[data]
type = "csv"
target = "label"
workers = 4
prefetch = 3
[data.train]
global_batch_size = 64
micro_batch_size = 16
shuffle = true
drop_last = true
take = "all but fold 1 of 5"
path = "${vars.root}/train.csv"
[data.val]
path = "${vars.root}/test.csv"
[data.test]
batch_size = 7
take = "last 10%"
path = "${vars.root}/test.csv"
[data.sampler]
type = "random"
[[metrics]]
type = "accuracy"
[[metrics]]
type = "top_k"
id = "top3"
k = 3
[optimizer]
type = "adamw"
lr = 1
betas = [0.9, 0]
groups = [{ match = ["*.bias", "*.norm.*"], weight_decay = 0.0 }, { match = ["head.*"], lr = 1e-7 }]
[schedule]
type = "cosine"
warmup = "5%"
delay = "1ep"
floor = 0.01
[trainer]
max_duration = "30ep"
max_wall_time = "1h30m"
eval_interval = "0.5ep"
precision = "fp16-mixed"
grad_clip = { type = "value", max = 2 }
[early_stopping]
metric = "val/top3"
mode = "max"
patience = 3
min_delta = 1e-3
[logging]
interval = "20ba"
[[logging.sinks]]
type = "console"
[[logging.sinks]]
type = "jsonl"
interval = "1ba"
[[hooks]]
type = "ema"
decay = 0.99
every = "10ba"
priority = 30
after = ["clip"]
on_error = "disable"
)";

std::string write_everything(const Folder& folder) {
  folder.write("store/digits/train.csv", "1");
  folder.write("store/digits/test.csv", "1");
  std::filesystem::create_directories(folder.path() + "/mine");
  return folder.write("all.toml", everything);
}

std::string write_minimal(const Folder& folder, const std::string& more = "") {
  folder.write("train.csv", "1");
  return folder.write("run.toml", minimal + more);
}

RunConfig resolved(const std::vector<std::string>& files, const std::vector<std::string>& sets = {}) {
  config::Resolution run = test::resolve(files, sets);
  INFO(run.findings.text());
  REQUIRE(run.config.has_value());
  return *run.config;
}

void check_same(const config::SlotConfig& a, const config::SlotConfig& b) {
  CHECK(a.slot == b.slot);
  CHECK(a.kind == b.kind);
  CHECK(a.type == b.type);
  CHECK(a.id == b.id);
  CHECK(config::toml_file(a.options) == config::toml_file(b.options));
  CHECK(a.hook.every == b.hook.every);
  CHECK(a.hook.on_error == b.hook.on_error);
}

void check_same(const std::vector<config::SlotConfig>& a, const std::vector<config::SlotConfig>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) check_same(a[i], b[i]);
}

void check_same(const config::BatchKeys& a, const config::BatchKeys& b) {
  CHECK(a.batch_size == b.batch_size);
  CHECK(a.micro_batch_size == b.micro_batch_size);
  CHECK(a.accumulation == b.accumulation);
  CHECK(a.shuffle == b.shuffle);
  CHECK(a.drop_last == b.drop_last);
  CHECK(a.take == b.take);
}

template <class T>
void check_same(const std::optional<T>& a, const std::optional<T>& b) {
  REQUIRE(a.has_value() == b.has_value());
  if (a) check_same(*a, *b);
}

void check_same(const RunConfig& a, const RunConfig& b) {
  CHECK(config::toml_file(a.resolved) == config::toml_file(b.resolved));
  CHECK(a.run.name == b.run.name);
  CHECK(a.run.seed == b.run.seed);
  CHECK(a.run.device == b.run.device);
  CHECK(a.run.deterministic == b.run.deterministic);
  CHECK(a.run.output_dir == b.run.output_dir);
  CHECK(a.threads.intra_op == b.threads.intra_op);
  CHECK(a.threads.inter_op == b.threads.inter_op);
  check_same(a.train, b.train);
  check_same(a.val, b.val);
  check_same(a.test, b.test);
  CHECK(a.data.workers == b.data.workers);
  CHECK(a.data.prefetch == b.data.prefetch);
  check_same(a.slots, b.slots);
  CHECK(a.trainer.max_duration == b.trainer.max_duration);
  CHECK(a.trainer.max_wall_time == b.trainer.max_wall_time);
  CHECK(a.trainer.eval_interval == b.trainer.eval_interval);
  CHECK(a.trainer.precision == b.trainer.precision);
  REQUIRE(a.grad_clip.has_value() == b.grad_clip.has_value());
  if (a.grad_clip) {
    CHECK(a.grad_clip->type == b.grad_clip->type);
    CHECK(a.grad_clip->max == b.grad_clip->max);
  }
  CHECK(a.logging.interval == b.logging.interval);
}

template <class T>
T option(const config::SlotConfig& slot, std::string_view name) {
  const Value* value = slot.options.find(name);
  REQUIRE(value != nullptr);
  REQUIRE(value->get_if<T>() != nullptr);
  return value->as<T>();
}

}  // namespace

TEST_CASE("what a run file leaves out has defaults") {
  const Folder folder;
  const RunConfig run = resolved({write_minimal(folder)});
  CHECK(run.run.name == "run");
  CHECK(run.run.output_dir == "runs/run");
  CHECK(run.run.device == "cpu");
  CHECK(run.at("schedule").type == "constant");
  CHECK(run.at("data.sampler").type == "sequential");
  CHECK(std::ranges::distance(run.of_kind("sink")) == 3);
  CHECK(run.at("logging.sinks[2]").type == "tensorboard");
  CHECK(run.train.micro_batch_size == 64);
  CHECK(run.train.accumulation == 1);
  CHECK_FALSE(run.val.has_value());
  CHECK(run.find("model.dropout") == nullptr);
  CHECK(run.logging.interval == Duration{50, Duration::Unit::steps});
  CHECK(option<double>(run.at("optimizer"), "lr") == 1.0);  // an integer where a float is wanted
  CHECK(option<bool>(run.at("optimizer"), "nesterov") == false);
  CHECK(option<std::string>(run.at("data.train"), "separator") == ",");
}

TEST_CASE("every key of a run file arrives") {
  const Folder folder;
  const RunConfig run = resolved({write_everything(folder)});
  CHECK(run.run.name == "all 32");
  CHECK(run.run.seed == 17);
  CHECK(run.run.device == "cuda:0");
  CHECK(run.run.deterministic == config::RunKeys::Deterministic::strict);
  CHECK(run.run.output_dir == "runs/${x}/all 32");
  CHECK(run.threads.intra_op == 2);
  CHECK(run.train.batch_size == 64);
  CHECK(run.train.micro_batch_size == 16);
  CHECK(run.train.accumulation == 4);
  CHECK(run.train.shuffle);
  CHECK(run.train.drop_last);
  CHECK(option<std::string>(run.at("data.train"), "path") == folder.path() + "/store/digits/train.csv");
  CHECK(option<std::string>(run.at("data.test"), "path") == folder.path() + "/store/digits/test.csv");
  CHECK(option<std::string>(run.at("data.val"), "target") == "label");
  CHECK(run.val->batch_size == 16);
  CHECK(run.test->batch_size == 7);
  CHECK(run.data.workers == 4);
  CHECK(run.data.prefetch == 3);
  CHECK(option<Array>(run.at("model"), "layers")[1].as<std::int64_t>() == 32);
  CHECK(run.find("model.dropout") != nullptr);
  CHECK(run.at("metrics[1]").id == "top3");
  CHECK(option<Array>(run.at("optimizer"), "groups").size() == 2);
  CHECK(run.trainer.max_wall_time->count == 5400);
  CHECK(run.trainer.eval_interval == Duration{0.5, Duration::Unit::epochs});
  CHECK(run.trainer.precision == config::TrainerKeys::Precision::fp16_mixed);
  CHECK(run.grad_clip->type == config::GradClip::Type::value);
  CHECK(run.grad_clip->max == 2.0);
  const config::SlotConfig& stopping = run.at("early_stopping");
  CHECK(stopping.kind == "hook");
  CHECK(stopping.type == "early_stopping");
  CHECK(stopping.address() == "early_stopping");
  CHECK(option<std::string>(stopping, "metric") == "val/top3");
  CHECK(option<std::string>(stopping, "mode") == "max");
  CHECK(run.logging.interval == Duration{20, Duration::Unit::steps});
  CHECK(run.at("hooks[0]").hook.every == "10ba");
  CHECK(run.at("hooks[0]").hook.priority == 30);
  CHECK(run.at("hooks[0]").hook.after == std::vector<std::string>{"clip"});
  CHECK(run.at("hooks[0]").hook.before.empty());
  CHECK(run.at("hooks[0]").hook.on_error == config::HookKeys::OnError::disable);
  CHECK_FALSE(run.at("hooks[0]").options.contains("every"));
}

TEST_CASE("the resolved file is the same run again, from any folder") {
  const Folder folder, elsewhere;
  for (const std::string& file : {write_minimal(folder), write_everything(folder)}) {
    const RunConfig run = resolved({file});
    for (const bool origins : {false, true}) {
      const std::string printed = config::toml_file(run.resolved, origins);
      INFO(printed);
      check_same(run, resolved({elsewhere.write("copied.toml", printed)}));
    }
  }
}

TEST_CASE("the schema of the host is whole: each key has help, each default fits its own key") {
  const Folder folder;
  for (const config::Section& section : config::schema())
    for (const config::Key& key : section.keys) {
      INFO(section.path << "." << key.name);
      CHECK_FALSE(key.help.empty());
      CHECK_FALSE((key.required && key.fallback));
      CHECK_THAT(config::schema_text(), Catch::Contains("  " + key.name + ": "));
    }
  CHECK_THAT(config::schema_text(),
             Catch::Contains("deterministic: string, off | warn | strict (default \"off\")"));
  const auto json = nlohmann::json::parse(config::schema_json());
  CHECK(json["tables"].size() == config::schema().size());
}

TEST_CASE("layers: tables merge, arrays replace, lists with ids merge by id") {
  const Folder folder;
  folder.write("train.csv", "1");
  folder.write("base.toml", minimal + R"(
[[hooks]]
type = "ema"
decay = 0.5
start = "10%"
[[metrics]]
type = "top_k"
id = "a"
k = 1
)");
  folder.write("deep/middle.toml",
               "extends = \"../base.toml\"\nschema = 1\n[optimizer]\nlr = 0.5\nmomentum = 0.9\n");
  const std::string top = folder.write("top.toml", R"(schema = 1
extends = ["deep/middle.toml"]
[model]
layers = [1, 2, 3]
[optimizer]
lr = 0.25
[[hooks]]
type = "ema"
decay = 0.75
[[metrics]]
type = "top_k"
id = "b"
k = 2
)");
  const std::string over = folder.write("over.toml", "[[metrics]]\nid = \"a\"\nk = 9\n");
  const RunConfig run = resolved({top, over});
  CHECK(run.run.name == "top");
  CHECK(option<double>(run.at("optimizer"), "lr") == 0.25);
  CHECK(option<double>(run.at("optimizer"), "momentum") == 0.9);
  CHECK(option<Array>(run.at("model"), "layers").size() == 3);
  REQUIRE(std::ranges::distance(run.of_kind("hook")) == 1);
  CHECK(option<double>(run.at("hooks[0]"), "decay") == 0.75);
  CHECK(option<std::string>(run.at("hooks[0]"), "start") == "10%");
  REQUIRE(std::ranges::distance(run.of_kind("metric")) == 2);
  CHECK(option<std::int64_t>(run.at("metrics[0]"), "k") == 9);
  CHECK(option<std::int64_t>(run.at("metrics[1]"), "k") == 2);
}

TEST_CASE("a file that another extends finds its data beside itself") {
  const Folder folder;
  folder.write("base/base.toml", minimal);
  folder.write("base/train.csv", "1");
  const std::string top = folder.write("top/run.toml", "schema = 1\nextends = \"../base/base.toml\"\n");
  CHECK(option<std::string>(resolved({top}).at("data.train"), "path") == folder.path() + "/base/train.csv");
}

TEST_CASE("another name is another folder, where the folder is called by the name") {
  const Folder folder;
  const auto run_of = [&](const std::string& run, const std::vector<std::string>& sets) {
    return resolved({write_minimal(folder, "[run]\n" + run)}, sets).run;
  };
  const std::string whole = "name = \"one\"\noutput_dir = \"/tmp/my/one\"\n";
  CHECK(run_of(whole, {}).output_dir == "/tmp/my/one");
  CHECK(run_of(whole, {"run.name=two"}).output_dir == "/tmp/my/two");
  CHECK(run_of(whole, {"run.seed=3"}).output_dir == "/tmp/my/one");
  CHECK(run_of(whole, {"run.output_dir=/tmp/here"}).output_dir == "/tmp/here");
  CHECK(run_of(whole, {"run.output_dir=/tmp/my/one", "run.name=two"}).output_dir == "/tmp/my/one");
  CHECK(run_of("name = \"one\"\noutput_dir = \"/tmp/someone\"\n", {"run.name=two"}).output_dir ==
        "/tmp/someone");
  CHECK(run_of("name = \"one\"\noutput_dir = \"runs/${run.name}\"\n", {"run.name=two"}).output_dir ==
        "runs/two");
  CHECK(run_of("name = \"one\"\n", {"run.name=two"}).output_dir == "runs/two");
}

TEST_CASE("--set writes any key") {
  const Folder folder;
  const std::string file = write_minimal(folder, "[[metrics]]\ntype = \"top_k\"\n");
  const RunConfig run =
      resolved({file}, {"optimizer.lr=0.125", "trainer.max_duration=7ba", "run.name=a b", "metrics.0.k=3",
                        "model.layers=[1, 2]", "model.layers.1=5", "run.threads.intra_op=2",
                        "data.train.shuffle=true", "trainer.grad_clip={max = 1}"});
  CHECK(option<double>(run.at("optimizer"), "lr") == 0.125);
  CHECK(run.trainer.max_duration == Duration{7, Duration::Unit::steps});
  CHECK(run.run.name == "a b");
  CHECK(option<std::int64_t>(run.at("metrics[0]"), "k") == 3);
  CHECK(option<Array>(run.at("model"), "layers")[1].as<std::int64_t>() == 5);
  CHECK(run.threads.intra_op == 2);
  CHECK(run.at("data.sampler").type == "random");
  CHECK(run.grad_clip->max == 1.0);
}

TEST_CASE("of several ranks on a machine each has a GPU of its own") {
  const Folder folder;
  const std::string file = write_minimal(folder);
  const auto device = [&](const std::string& device, int ranks, int local_ranks) {
    const config::Resolution run = config::resolve(
        config::load({file}, {"run.device=" + device}, {"data", ranks, local_ranks}), test::registry());
    return run.config ? run.config->run.device : run.findings.text();
  };
  CHECK(device("cuda", 1, 1) == "cuda:0");
  CHECK(device("cuda", 4, 2) == "cuda");
  CHECK(device("cuda:1", 1, 1) == "cuda:1");
  CHECK(device("cuda:1", 2, 1) == "cuda:1");  // of two machines
  CHECK(device("cpu", 2, 2) == "cpu");
  CHECK_THAT(device("cuda:1", 4, 2),
             Catch::Contains("E208 run.device: \"cuda:1\" is one GPU, and 2 ranks train on this machine") &&
                 Catch::Contains("set run.device = \"cuda\""));
}

TEST_CASE("a --set that is wrong is shown with its place") {
  const Folder folder;
  const std::string file = write_minimal(folder, "[[metrics]]\ntype = \"top_k\"\n");
  const auto report = [&](const std::string& set) {
    const config::Resolution run = test::resolve({file}, {"run.seed=1", set});
    CHECK_FALSE(run.config.has_value());
    return run.findings.text();
  };
  CHECK_THAT(report("optimizer.lrr=1"), Catch::Contains("--set:2:11: E104 unknown key `lrr` in [optimizer]"));
  CHECK_THAT(report("optimizer.lr=abc"), Catch::Contains("--set:2:14: E105 optimizer.lr: expected a float"));
  CHECK_THAT(report("optimizer.lr"), Catch::Contains("--set:2:1: E111 `optimizer.lr` is not KEY=VALUE"));
  CHECK_THAT(report("optimizer..lr=1"),
             Catch::Contains("--set:2:11: E111 `optimizer..lr` is not a dotted key"));
  CHECK_THAT(report("metrics.1.k=1"), Catch::Contains("--set:2:9: E111 `metrics` is a list of 1"));
  CHECK_THAT(report("metrics.x.k=1"), Catch::Contains("`x` is not an index into it"));
  CHECK_THAT(report("optimizer.lr.x=1"), Catch::Contains("`optimizer.lr` is integer: there is no `x` in it"));
  CHECK_THAT(report("model.layers=[1,"),
             Catch::Contains("--set:2:14: E111 the value of `model.layers` is not TOML"));
  CHECK_THAT(report("run.name=\"a\"\nseed=2"), Catch::Contains("is not TOML"));
  CHECK_THAT(report("=1"), Catch::Contains("is not a dotted key"));
  CHECK_THAT(report(std::string(20000, '.') + "=1"), Catch::Contains("is not a dotted key"));
}

TEST_CASE("another type of plugin leaves the options of the one before it, and says so") {
  const Folder folder;
  const std::string file = write_minimal(folder);
  const config::Resolution run = test::resolve({file}, {"optimizer.momentum=0.9"});
  REQUIRE(run.config.has_value());
  const std::string with = folder.write("momentum.toml", config::toml_file(run.config->resolved));
  const config::Resolution other = test::resolve({with}, {"optimizer.type=adamw"});
  INFO(other.findings.text());
  REQUIRE(other.config.has_value());
  CHECK(option<double>(other.config->at("optimizer"), "lr") == 1.0);
  CHECK_FALSE(other.config->at("optimizer").options.contains("momentum"));
  CHECK_THAT(other.findings.text(),
             Catch::Contains("E113 warning: optimizer.momentum is left out: --set made the type"));
}

TEST_CASE("references build on each other, keep types and cannot blow up") {
  const Folder folder;
  const std::string file = write_minimal(folder, "[vars]\na = 8\nb = \"${vars.a}\"\nlr = 0.5\n");
  const RunConfig run = resolved({file}, {"model.layers=[\"${vars.b}\", 2]", "run.name=n${vars.b}-${vars.lr}",
                                          "optimizer.lr=${vars.lr}", "vars.a=9"});
  CHECK(option<Array>(run.at("model"), "layers")[0].as<std::int64_t>() == 9);
  CHECK(run.run.name == "n9-0.5");
  CHECK(run.run.output_dir == "runs/n9-0.5");
  CHECK(option<double>(run.at("optimizer"), "lr") == 0.5);

  std::string laughs = "[vars]\nv0 = \"ha\"\n";
  for (int i = 1; i < 60; ++i)
    laughs += "v" + std::to_string(i) + " = \"${vars.v" + std::to_string(i - 1) + "}${vars.v" +
              std::to_string(i - 1) + "}\"\n";
  const config::Resolution bomb = test::resolve({write_minimal(folder, laughs)});
  CHECK_FALSE(bomb.config.has_value());
  CHECK_THAT(bomb.findings.text(), Catch::Contains("E110 grows beyond 64 KiB"));
}

TEST_CASE("${run.data} comes from the environment unless the file has run.data") {
  const Folder folder;
  folder.write("away/train.csv", "1");
  std::string text = minimal;
  text.replace(text.find("\"train.csv\""), 11, "\"${run.data}/train.csv\"");
  const std::string file = folder.write("run.toml", text);
  const auto run = test::resolve({file}, {}, folder.path() + "/away");
  REQUIRE(run.config.has_value());
  CHECK(option<std::string>(run.config->at("data.train"), "path") == folder.path() + "/away/train.csv");
  const auto lost = test::resolve({file}, {}, folder.path() + "/nowhere");
  CHECK_THAT(lost.findings.text(),
             Catch::Contains("E401 data.train.path: " + folder.path() + "/nowhere/train.csv does not exist"));
  const auto own = test::resolve({file}, {"run.data=" + folder.path() + "/away"}, folder.path() + "/nowhere");
  CHECK(own.config.has_value());
}

TEST_CASE("a dataset may have a list of files, each of which has to be there") {
  const Folder folder;
  folder.write("train.csv", "1");
  folder.write("more.csv", "1");
  std::string text = minimal;
  text.replace(text.find("\"csv\""), 5, "\"csvs\"");
  text.replace(text.find("\"train.csv\""), 11, "[\"train.csv\", \"more.csv\"]");
  const RunConfig run = resolved({folder.write("run.toml", text)});
  CHECK(option<Array>(run.at("data.train"), "path")[1].as<std::string>() == folder.path() + "/more.csv");
  text.replace(text.find("more.csv"), 8, "mroe.csv");
  const config::Resolution wrong = test::resolve({folder.write("run.toml", text)});
  CHECK_THAT(wrong.findings.text(), Catch::Contains("mroe.csv does not exist"));
  CHECK_THAT(wrong.findings.text(), Catch::Contains("^^^^^^^^^^ did you mean `more.csv`?"));
}

TEST_CASE("only options that the manifest declares as files are paths") {
  const Folder folder;
  // `target` of a csv is a name, whatever lies beside the run file.
  const RunConfig run = resolved({write_minimal(folder)}, {"data.target=train.csv"});
  CHECK(option<std::string>(run.at("data.train"), "target") == "train.csv");
}

TEST_CASE("integers that the plugin cannot hold are out of range") {
  struct Narrow {
    std::int32_t small = 0;
    std::uint64_t positive = 0;
    std::int64_t wide = 0;
  };
  ManifestData data;
  DataWriter writer(data);
  Fields<Narrow> fields(writer);
  fields.option("small", &Narrow::small, "");
  fields.option("positive", &Narrow::positive, "");
  fields.option("wide", &Narrow::wide, "");
  config::Findings findings;
  config::Checker checker(findings, true);
  CHECK(checker.value(data.options[0], Value(2147483647), "small").has_value());
  CHECK_FALSE(checker.value(data.options[0], Value(std::int64_t{2147483648}), "small").has_value());
  CHECK_FALSE(checker.value(data.options[0], Value(std::int64_t{-2147483649}), "small").has_value());
  CHECK(checker.value(data.options[1], Value(std::int64_t{1} << 62), "positive").has_value());
  CHECK_FALSE(checker.value(data.options[1], Value(-1), "positive").has_value());
  CHECK(checker.value(data.options[2], Value(std::numeric_limits<std::int64_t>::min()), "wide").has_value());
  CHECK(findings.errors() == 3);
}

TEST_CASE("an option that a key of the host would hide is the plugin's fault, and said so") {
  const Folder folder;
  plugins::PluginFile hook = test::file_of<test::Ema>();
  hook.manifest.options[0].name = "every";
  plugins::PluginFile dataset = test::file_of<test::OneCsv>();
  dataset.manifest.options[3].name = "batch_size";
  std::vector<plugins::PluginFile> files = test::registry().files();
  std::erase_if(files, [](const plugins::PluginFile& file) {
    return file.manifest.name == "ema" || file.manifest.name == "csv";
  });
  files.push_back(hook);
  files.push_back(dataset);
  const config::Resolution run =
      config::resolve(config::load({write_minimal(folder, "[[hooks]]\ntype = \"ema\"\n")}, {}, {"data"}),
                      plugins::Registry(files));
  CHECK(run.findings.errors() == 2);
  CHECK_THAT(run.findings.text(),
             Catch::Contains("E306 libema.so: its option `every` is a key of the host in [[hooks]]"));
  CHECK_THAT(run.findings.text(),
             Catch::Contains("E306 libcsv.so: its option `batch_size` is a key of the host in [data.train]"));
}

TEST_CASE("batch sizes are solved from any that are given") {
  const Folder folder;
  const std::string file = write_minimal(folder);
  struct Case {
    std::string set;
    std::int64_t batch, micro, accumulation;
  };
  for (const Case& c : {Case{"{ batch_size = 64 }", 64, 64, 1},
                        {"{ global_batch_size = 64, micro_batch_size = 16 }", 64, 16, 4},
                        {"{ batch_size = 64, accumulation = 8 }", 64, 8, 8},
                        {"{ micro_batch_size = 16, accumulation = 3 }", 48, 16, 3},
                        {"{ micro_batch_size = 16 }", 16, 16, 1},
                        {"{ batch_size = 6, micro_batch_size = 2, accumulation = 3 }", 6, 2, 3}}) {
    INFO(c.set);
    const RunConfig run = resolved({file}, {"data.train=" + c.set});
    CHECK(run.train.batch_size == c.batch);
    CHECK(run.train.micro_batch_size == c.micro);
    CHECK(run.train.accumulation == c.accumulation);
  }
}

TEST_CASE("metrics without anything to evaluate are a warning, not an error") {
  const Folder folder;
  const config::Resolution run = test::resolve({write_minimal(folder, "[[metrics]]\ntype = \"accuracy\"\n")});
  CHECK(run.config.has_value());
  CHECK_THAT(run.findings.text(), Catch::Contains("E210 warning: [[metrics]] are computed in evaluations"));
}

TEST_CASE("files that cannot be read are one finding") {
  const Folder folder;
  CHECK_THAT(test::resolve({folder.path() + "/none.toml"}).findings.text(),
             Catch::Contains("E101 cannot be read: No such file"));
  CHECK_THAT(test::resolve({folder.path()}).findings.text(), Catch::Contains("E101 is a folder"));
  CHECK_THAT(test::resolve({folder.write("large.toml", std::string((1 << 20) + 1, '#'))}).findings.text(),
             Catch::Contains("E101 is larger than 1 MiB"));
  CHECK_THAT(test::resolve({"/dev/zero"}).findings.text(),
             Catch::Contains("E101 is a device, not a run file"));
  const std::string pipe = folder.path() + "/pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THAT(test::resolve({pipe}).findings.text(), Catch::Contains("/pipe: E101 is a pipe, not a run file"));
  CHECK_THAT(test::resolve({folder.write("top.toml", "extends = \"pipe\"")}).findings.text(),
             Catch::Contains("/pipe: E101 is a pipe"));
  CHECK_THAT(test::resolve({write_minimal(folder)}, {"data.path=" + pipe}).findings.text(),
             Catch::Contains("E401 data.train.path: " + pipe + " is a pipe, not a file"));
  const std::string closed = folder.write("closed.csv", "1,2\n"), open = write_minimal(folder);
  ::chmod(closed.c_str(), 0);
  ::chmod(folder.path().c_str(), 0755);
  const pid_t child = ::fork();  // somebody else than root, who may read everything
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(9);
    const std::string found = test::resolve({open}, {"data.path=" + closed}).findings.text();
    ::_exit(found.find("E401 data.train.path: no right to read " + closed) != std::string::npos ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
  CHECK_THAT(test::resolve({folder.write("empty.toml", "")}).findings.text(),
             Catch::Contains("E103 the file does not say"));
  CHECK_THAT(test::resolve({}).findings.text(), Catch::Contains("run: E101 no run file was given"));
}

TEST_CASE("a finding is shown with its line, a caret and the mend; tools get JSON") {
  config::Findings findings;
  findings.add_source("run.toml", "[optimizer]\n  n\xc3\xa4me = \"\xc3\xa4\xc3\xb6\" # x\r\n");
  const auto file = std::make_shared<const std::string>("run.toml");
  findings.error("E104", {file, 2, 3}, "unknown key", "did you mean `name`?");
  findings.error("E105", {file, 2, 10}, "wrong");
  findings.error("E105", {file, 2, 10}, "wrong");
  findings.error("E108", {file, 0, 0}, "nothing there", "add it");
  CHECK(findings.errors() == 3);
  CHECK(findings.text() ==
        "run.toml: E108 nothing there\n"
        "      | add it\n"
        "run.toml:2:3: E104 unknown key\n"
        "    2 |   n\xc3\xa4me = \"\xc3\xa4\xc3\xb6\" # x\n"
        "      |   ^^^^ did you mean `name`?\n"
        "run.toml:2:10: E105 wrong\n"
        "    2 |   n\xc3\xa4me = \"\xc3\xa4\xc3\xb6\" # x\n"
        "      |          ^^^^\n");
  const auto json = nlohmann::json::parse(findings.json());
  CHECK(json["errors"] == 3);
  CHECK(json["warnings"] == 0);
  CHECK(json["findings"][1]["column"] == 3);
  CHECK(json["findings"][1]["length"] == 4);
  CHECK(json["findings"][1]["code"] == "E104");
  CHECK(json["findings"][1]["severity"] == "error");
}

TEST_CASE("numbers of lines stand in a column of five, and longer ones in full") {
  config::Findings findings;
  findings.add_source("run.toml", std::string(123455, '\n') + "name = 1");
  const auto file = std::make_shared<const std::string>("run.toml");
  findings.error("E104", {file, 123456, 1}, "unknown key", "drop it");
  findings.add_source("small.toml", std::string(41, '\n') + "name = 1");
  findings.error("E104", {std::make_shared<const std::string>("small.toml"), 42, 1}, "unknown key",
                 "drop it");
  CHECK_THAT(findings.text(),
             Catch::Contains("\n123456 | name = 1\n") && Catch::Contains("\n   42 | name = 1\n"));
}

TEST_CASE("values print as TOML that reads back") {
  std::mt19937_64 random(4);
  for (int i = 0; i < 5000; ++i) {
    std::uint64_t bits = random();
    double number;
    std::memcpy(&number, &bits, sizeof number);
    if (!std::isfinite(number)) continue;
    const std::optional<Value> read = config::parse_value(config::toml_text(Value(number)));
    INFO(config::toml_text(Value(number)));
    REQUIRE(read.has_value());
    REQUIRE(read->get_if<double>() != nullptr);
    REQUIRE(read->as<double>() == number);
  }
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (std::size_t n = random() % 12; n > 0; --n) text += static_cast<char>(1 + random() % 126);
    const std::optional<Value> read = config::parse_value(config::toml_text(Value(text)));
    REQUIRE(read.has_value());
    REQUIRE(read->as<std::string>() == text);
  }
}

TEST_CASE("diff lists the keys that differ") {
  const Folder folder;
  const std::string file = write_minimal(folder, "[[metrics]]\ntype = \"top_k\"\n");
  const RunConfig a = resolved({file});
  const RunConfig b = resolved({file}, {"optimizer.lr=0.5", "metrics.0.k=3", "trainer.max_wall_time=5m"});
  CHECK(config::diff(a.resolved, a.resolved).empty());
  const std::vector<config::Difference> differences = config::diff(a.resolved, b.resolved);
  REQUIRE(differences.size() == 3);
  CHECK(differences[0].key == "metrics.0.k");
  CHECK(differences[0].a == "5");
  CHECK(differences[0].b == "3");
  CHECK(differences[1].key == "optimizer.lr");
  CHECK(differences[2].key == "trainer.max_wall_time");
  CHECK(differences[2].a.empty());
}

TEST_CASE("changes are applied on top of what the run has become") {
  const Folder folder;
  const std::string file = write_minimal(folder, "[[metrics]]\ntype = \"top_k\"\n");
  const std::vector<std::vector<std::string>> changes = {
      {},
      {"optimizer.lr=0.5", "metrics.0.k=3"},
      {"trainer.grad_clip={max = 1}", "optimizer.lr=0.25"},
      {"metrics=[]"},
      {"metrics=[{type=\"accuracy\"},{type=\"top_k\",k=2}]"}};
  for (const auto& before : changes)
    for (const auto& after : changes) {
      const Table a = resolved({file}, before).resolved, b = resolved({file}, after).resolved;
      const std::vector<config::Difference> differences = config::diff(a, b);
      const Table merged = config::with_changes(a, differences, b);
      CHECK(merged.find("trainer")->as<Table>().contains("grad_clip") ==
            b.find("trainer")->as<Table>().contains("grad_clip"));
      CHECK(config::diff(merged, b).empty());
      Table swapped = a;
      swapped.find("run")->as<Table>().set("seed", 77);
      swapped.find("optimizer")->as<Table>().set("momentum", 0.75);
      const Table both = config::with_changes(swapped, differences, b);
      CHECK(both.find("run")->as<Table>().find("seed")->as<std::int64_t>() == 77);
      const Table& optimizer = both.find("optimizer")->as<Table>();  // beside a key that changes
      CHECK(optimizer.find("momentum")->as<double>() == 0.75);
      CHECK(optimizer.find("lr")->as<double>() == b.find("optimizer")->as<Table>().find("lr")->as<double>());
    }
}

TEST_CASE("edit distance and suggestions") {
  CHECK(config::edit_distance("", "abc") == 3);
  CHECK(config::edit_distance("abc", "abc") == 0);
  CHECK(config::edit_distance("momentun", "momentum") == 1);
  CHECK(config::edit_distance("sede", "seed") == 1);
  CHECK(config::edit_distance("kitten", "sitting") == 3);
  CHECK(config::nearest("momentun", {"lr", "momentum", "nesterov"}) == "momentum");
  CHECK(config::nearest("zzz", {"lr", "momentum"}).empty());
  CHECK(config::suggestion("zzz", {"lr", "momentum"}) == "allowed: lr, momentum");
}

TEST_CASE("no mutation of a run file crashes the host") {
  const Folder folder;
  write_everything(folder);
  std::mt19937_64 random(5);
  const std::string pieces = "[]{}=\"'#.,\n\\$ \t0aE-\x80\xff";
  for (int i = 0; i < 3000; ++i) {
    std::string text = everything;
    for (std::size_t n = 1 + random() % 4; n > 0; --n) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text.erase(at, 1 + random() % 8); break;
        case 1: text.insert(at, 1, pieces[random() % pieces.size()]); break;
        case 2: text[at] = pieces[random() % pieces.size()]; break;
        default: text.insert(at, text.substr(random() % text.size(), random() % 30)); break;
      }
      if (text.empty()) text = "x";
    }
    const config::Resolution run = test::resolve({folder.write("mutant.toml", text)});
    REQUIRE(run.config.has_value() != (run.findings.errors() > 0));
    REQUIRE_FALSE(nlohmann::json::parse(run.findings.json()).empty());
    run.findings.text(true);
    if (run.config && i % 20 == 0)
      check_same(*run.config,
                 resolved({folder.write("again.toml", config::toml_file(run.config->resolved))}));
  }
}

namespace {

/// So many lines, each made from its number.
template <class Line>
std::string lines(int count, Line&& line) {
  std::string text;
  for (int i = 0; i < count; ++i) text += line(i) + "\n";
  return text;
}

}  // namespace

TEST_CASE("a chain of variables costs no stack, whichever way round it is written") {
  const Folder folder;
  const auto chain = [&](int count, int step) {
    const std::string vars = lines(count, [&](int i) {
      const int next = i + step;
      return "v" + std::to_string(i) + " = " +
             (next < 0 || next == count ? "7" : "\"${vars.v" + std::to_string(next) + "}\"");
    });
    return test::resolve({write_minimal(folder, "[vars]\n" + vars)}, {"run.seed=${vars.v0}"});
  };
  REQUIRE(chain(60, 1).config.has_value());
  CHECK(chain(60, 1).config->run.seed == 7);
  CHECK(chain(30'000, -1).config.has_value());
  const config::Resolution deep = chain(30'000, 1);
  CHECK_FALSE(deep.config.has_value());
  CHECK_THAT(deep.findings.text(),
             Catch::Contains(":118:7: E110 ${vars.v100} is needed by a chain of 100 variables: "
                             "vars.v0 -> vars.v1 -> ... -> vars.v99"));

  const std::string wide = "[vars]\nlong = \"" + std::string(60'000, 'x') + "\"\n" + lines(5'000, [](int i) {
                             return "v" + std::to_string(i) + " = \"${vars.long}\"";
                           });
  CHECK_THAT(test::resolve({write_minimal(folder, wide)}).findings.text(),
             Catch::Contains("grow beyond 16 MiB"));
}

// Quadratic work would take minutes at these sizes.
TEST_CASE("as much as a run file can hold is reported, all of it") {
  const Folder folder;
  const auto errors = [&](const std::string& more, const std::vector<std::string>& layers = {}) {
    std::vector<std::string> files = layers;
    files.insert(files.begin(), write_minimal(folder, more));
    const config::Resolution run = test::resolve(files);
    CHECK_FALSE(run.findings.text().empty());
    return run.findings.errors();
  };
  const std::string keys = lines(80'000, [](int i) { return "k" + std::to_string(i) + "=1"; });
  CHECK(errors("[early_stopping]\nmetric=\"val/loss\"\nmode=\"min\"\n" + keys) >= 80'000);
  CHECK(errors("[run]\n" + keys, {folder.write("over.toml", "[run]\n" + keys)}) == 80'000);
  CHECK(errors("", {folder.write("top.toml", keys)}) == 80'000);
  std::string wrong = "[\"\u00e9\"";
  for (int i = 1; i < 150'000; ++i) wrong += ",\"a\"";
  CHECK(errors("[run]\nload_match=" + wrong + ",1]\n") == 1);
  CHECK(errors("[model.dropout]\ntype=\"standard\"\np=" + wrong + "]\n") == 1);
  std::string text = minimal;
  text.replace(text.find("[64, 10]"), 8, wrong + "]");
  CHECK(test::resolve({folder.write("wide.toml", text)}).findings.errors() == 150'000);
  // Each names nothing, and each hint could list all that there are.
  const std::string lost = lines(12'000, [](int i) {
    return "v" + std::to_string(i) + "=1\nw" + std::to_string(i) + "=\"${vars.x" + std::to_string(i) + "}\"";
  });
  CHECK(errors("[vars]\n" + lost) == 12'000);
  std::string files = "[\"a\"";
  for (int i = 0; i < 50'000; ++i) files += ",\"no" + std::to_string(i) + "\"";
  for (int i = 0; i < 1'000; ++i) folder.write("beside/near" + std::to_string(i), "");
  text = minimal;
  text.replace(text.find("\"csv\""), 5, "\"csvs\"");
  text.replace(text.find("\"train.csv\""), 11, files + "]");
  CHECK(test::resolve({folder.write("beside/run.toml", text)}).findings.errors() == 50'001);
}

TEST_CASE("thousands of hooks have an order, and it is found") {
  const Folder folder;
  const std::string hooks = lines(4'000, [](int i) {
    return "[[hooks]]\ntype=\"ema\"\nid=\"h" + std::to_string(i) + "\"\nafter=[\"h" + std::to_string(i + 1) +
           "\"]";
  });
  const RunConfig run = resolved({write_minimal(folder, hooks)});
  const std::vector<events::Participant> participants = config::participants(run, test::registry());
  const events::Order order = events::make_order(participants);
  CHECK(order.problems.empty());
  const auto& places = order.places[static_cast<std::size_t>(Event::after_step)];
  REQUIRE(places.size() == 4'000);
  CHECK(participants[places.front().participant].id == "h3999");
  CHECK(participants[places.back().participant].id == "h0");
  CHECK(
      config::diff(run.resolved, resolved({write_minimal(folder, hooks)}, {"hooks.3999.decay=0.5"}).resolved)
          .size() == 1);

  std::vector<events::Participant> writers;
  const HookSpec writer{.event = Event::before_step, .phase = Phase::transform, .writes = Region::grads};
  for (int i = 0; i < 4'000; ++i) writers.push_back({"w" + std::to_string(i), "writer", {writer}});
  const std::vector<events::OrderProblem> problems = events::make_order(writers).problems;
  REQUIRE(problems.size() == 3'999);  // each with the one after it
  CHECK(problems.back().message ==
        "\"w3998\" and \"w3999\" both write grads at before_step in no declared order");
  for (std::size_t i = 0; i + 1 < writers.size(); ++i) writers[i].hooks[0].after = {writers[i + 1].id};
  CHECK(events::make_order(writers).problems.empty());
  writers.back().hooks[0].after = {"w0"};
  REQUIRE(events::make_order(writers).problems.size() == 1);
  CHECK(events::make_order(writers).problems[0].code == "E318");
}

TEST_CASE("a link to a file of the run is such a file") {
  const Folder folder;
  folder.write("run/config.toml", "");
  std::filesystem::create_symlink("config.toml", folder.path() + "/run/m.jsonl");
  std::filesystem::create_symlink("checkpoints/x", folder.path() + "/run/c.jsonl");
  std::filesystem::create_symlink("/elsewhere/m.jsonl", folder.path() + "/run/far.jsonl");
  const auto report = [&](const std::string& file) {
    return test::resolve({write_minimal(folder)}, {"run.output_dir=" + folder.path() + "/run",
                                                   "logging.sinks=[{type=\"jsonl\", file=\"" + file + "\"}]"})
        .findings.text();
  };
  CHECK_THAT(report("m.jsonl"),
             Catch::Contains("E403 logging.sinks[0].file: \"m.jsonl\" leads to config.toml"));
  CHECK_THAT(report("c.jsonl"), Catch::Contains("leads to checkpoints/x, a file of the run itself"));
  CHECK(report("far.jsonl").empty());  // to another disk, say
  CHECK(report("new.jsonl").empty());
}

TEST_CASE("hostile nesting is refused, not followed") {
  const Folder folder;
  std::string dots = "a";
  for (int i = 0; i < 100000; ++i) dots += ".a";
  for (const std::string& text :
       {"[" + dots + "]\n", dots + " = 1\n", "x = { " + dots + " = 1 }\n",
        "x = \"\"\"a \" b\"\"\"\n[" + dots + "]\n", "x = {q = '''it's''''', " + dots + " = 1}\n",
        std::string(100000, '['), "x = " + std::string(100000, '['), "x = " + std::string(100000, '{'),
        "[[" + dots + "]]\n"}) {
    const config::Resolution run = test::resolve({folder.write("deep.toml", text)});
    CHECK_FALSE(run.config.has_value());
    CHECK_THAT(run.findings.text(), Catch::Contains("E102"));
  }
  const std::string fine = write_minimal(
      folder, "[run]\nname = \"" + std::string(60, '.') + "x\"  # a.b.c" + std::string(60, '.') + "\n");
  CHECK(resolved({fine}).run.name.size() == 61);
}

TEST_CASE("needs that hold under conditions refuse no run that does not meet these") {
  const auto findings = [](const std::vector<std::string>& sets) {
    std::vector<std::string> all = {"executor.type=pipe"};
    all.insert(all.end(), sets.begin(), sets.end());
    return test::resolve({"base/base.toml"}, all).findings.text();
  };
  std::filesystem::current_path(std::string(TRAINYARD_SOURCE_DIR) + "/tests/front/broken");
  CHECK(findings({}).empty());
  CHECK(findings({"model.dropout={ type = \"standard\" }"}).empty());
  CHECK(findings({"executor.mode=late", "optimizer.momentum=0.5"}).empty());
  CHECK(findings({"executor.mode=late", "trainer.precision=bf16-mixed"}).empty());
  CHECK_THAT(findings({"executor.mode=odd"}),
             Catch::Contains("warning") &&
                 Catch::Contains("the executor \"pipe\" does all it can only with trainer.precision = fp64 "
                                 "where mode = odd, and it is \"fp32\""));
  CHECK(findings({"executor.mode=free", "hooks=[{ type = \"scaler\" }]"}).empty());
}

TEST_CASE("a list that another version of the host does not have is an empty one for a resume") {
  const auto failed = [](const config::Difference& change) {
    config::Findings findings;
    const bool silent = config::check_changes({change}, 4, findings).empty();
    return findings.failed() || !silent;
  };
  CHECK_FALSE(failed({"transforms", "", "[]"}));
  CHECK_FALSE(failed({"transforms", "[]", ""}));
  CHECK(failed({"transforms", "", "[{ type = \"gain\" }]"}));
  CHECK(failed({"transforms.0.layer", "\"fc1\"", "\"fc2\""}));
}

}  // namespace config_tests
