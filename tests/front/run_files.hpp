// Plugins as manifests only, and run files in a folder of their own, for tests of the configuration.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/plugin.hpp>
#include <trainyard/schedule.hpp>
#include <trainyard/sink.hpp>
#include "core/runfile/resolve.hpp"
#include "support/folder.hpp"

namespace trainyard::test {

/// The least that a run file must say.
inline const std::string minimal = R"(schema = 1
[model]
type = "mlp"
layers = [64, 10]
[loss]
type = "cross_entropy"
[data]
type = "csv"
path = "train.csv"
target = "label"
[data.train]
batch_size = 64
[optimizer]
type = "sgd"
lr = 1
[trainer]
max_duration = "3ep"
)";

struct Rule {
  std::vector<std::string> match;
  std::optional<double> lr, weight_decay;
  static void describe(Fields<Rule>& m) {
    m.option("match", &Rule::match, "patterns of parameter names").required();
    m.option("lr", &Rule::lr, "learning rate of the group").min(0.0);
    m.option("weight_decay", &Rule::weight_decay, "weight decay of the group").min(0.0);
  }
};

struct OptimizerCommon {
  double lr = 0.0, weight_decay = 0.0;
  std::string decay = "all";
  std::vector<Rule> groups;
  static void describe(Fields<OptimizerCommon>& m) {
    m.option("lr", &OptimizerCommon::lr, "base learning rate").required().above(0.0);
    m.option("weight_decay", &OptimizerCommon::weight_decay, "weight decay").min(0.0);
    m.option("decay", &OptimizerCommon::decay, "what decays").one_of({"all", "matrices"});
    m.option("groups", &OptimizerCommon::groups, "other values for parameters by name");
  }
};

struct Sgd : Plugin {
  static constexpr Kind kind{"optimizer", 1};
  using Common = OptimizerCommon;
  struct Options {
    double momentum = 0.0;
    bool nesterov = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("sgd").version("1.0.0");
    m.option("momentum", &Options::momentum, "momentum").min(0.0).below(1.0);
    m.option("nesterov", &Options::nesterov, "Nesterov's momentum");
  }
};

struct AdamW : Plugin {
  static constexpr Kind kind{"optimizer", 1};
  using Common = OptimizerCommon;
  struct Options {
    std::vector<double> betas{0.9, 0.999};
    double eps = 1e-8;
  };
  static void describe(Manifest<Options>& m) {
    m.name("adamw").version("1.0.0");
    m.option("betas", &Options::betas, "decay of the moments").min(0.0).below(1.0);
    m.option("eps", &Options::eps, "added to the denominator").above(0.0);
  }
};

struct Csv : Plugin {
  static constexpr Kind kind{"dataset", 1};
  struct Options {
    std::vector<std::string> path;
    std::string target;
    std::string separator = ",";
    std::int64_t skip = 0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("csvs").version("1.0.0");
    m.option("path", &Options::path, "files").required().file();
    m.option("target", &Options::target, "column of the target").required();
    m.option("separator", &Options::separator, "between cells");
    m.option("skip", &Options::skip, "rows left out").min(0);
  }
};

struct OneCsv : Plugin {
  static constexpr Kind kind{"dataset", 1};
  struct Options {
    std::string path;
    std::string target;
    std::string separator = ",";
    std::int64_t skip = 0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("csv").version("1.0.0");
    m.option("path", &Options::path, "file").required().file();
    m.option("target", &Options::target, "column of the target").required();
    m.option("separator", &Options::separator, "between cells");
    m.option("skip", &Options::skip, "rows left out").min(0);
  }
};

struct Mlp : Plugin {
  static constexpr Kind kind{"model", 1};
  struct Options {
    std::vector<std::int64_t> layers;
    std::string activation = "relu";
  };
  static void describe(Manifest<Options>& m) {
    m.name("mlp").version("1.0.0");
    m.option("layers", &Options::layers, "widths").required().min(1);
    m.option("activation", &Options::activation, "between layers").one_of({"relu", "gelu", "tanh"});
  }
};

struct Dropout : Plugin {
  static constexpr Kind kind{"dropout", 1};
  struct Options {
    double p = 0.5;
  };
  static void describe(Manifest<Options>& m) {
    m.name("standard").version("1.0.0");
    m.option("p", &Options::p, "share of zeros").min(0.0).below(1.0);
  }
};

struct TopK : Plugin {
  static constexpr Kind kind{"metric", 1};
  struct Options {
    std::int64_t k = 5;
  };
  static void describe(Manifest<Options>& m) {
    m.name("top_k").version("1.0.0");
    m.option("k", &Options::k, "candidates").min(1);
  }
};

struct Ema : Plugin {
  static constexpr Kind kind{"hook", 1};
  struct Options {
    double decay = 0.999;
    Duration start{0, Duration::Unit::steps};
  };
  static void describe(Manifest<Options>& m) {
    m.name("ema").version("1.0.0").conflicts("swa");
    m.option("decay", &Options::decay, "weight of the past").range(0.0, 1.0);
    m.option("start", &Options::start, "when the average begins");
    m.hook<&Ema::average>(Event::after_step).every("1ba");
  }
  void average(StepContext&) {}
};

struct EarlyStopping : Plugin {
  static constexpr Kind kind{"hook", 1};
  struct Options {
    std::string metric, mode;
    std::int64_t patience = 5;
    double min_delta = 0.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("early_stopping").version("1.0.0");
    m.option("metric", &Options::metric, "what is watched").metric().also({"monitor"}).required();
    m.option("mode", &Options::mode, "what is better").one_of({"min", "max"}).required();
    m.option("patience", &Options::patience, "evaluations").range(1, 1e6);
    m.option("min_delta", &Options::min_delta, "least gain").min(0.0);
  }
};

struct Jsonl : Plugin {
  static constexpr Kind kind{"sink", 1};
  using Common = SinkCommon;
  struct Options {
    std::string file = "metrics.jsonl";
  };
  static void describe(Manifest<Options>& m) {
    m.name("jsonl").version("1.0.0");
    m.option("file", &Options::file, "in the run's folder").output();
  }
};

/// An executor that cannot do everything.
struct Pipe : Plugin {
  static constexpr Kind kind{"executor", 1};
  struct Options {
    std::string mode = "sim";
    std::vector<std::int64_t> parts;
  };
  static void describe(Manifest<Options>& m) {
    m.name("pipe").version("1.0.0");
    m.needs("optimizer.type = sgd | adam").needs("optimizer.nesterov = false");
    m.needs("optimizer.momentum != 0 where mode = late and trainer.precision = fp32");
    m.needs("no model.dropout where parts != none").needs("no free_rows").needs("graph where mode = cut");
    m.needs("one rank where mode = sim | late").needs("prefers trainer.precision = fp64 where mode = odd");
    m.provides("batch").provides("hyper where mode = free");
    m.option("mode", &Options::mode, "what it does");
    m.option("parts", &Options::parts, "a list");
  }
};

/// A hook that writes what the executor may not honour, at events that all executors let the host fire.
struct Scaler : Plugin {
  static constexpr Kind kind{"hook", 1};
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("scaler").version("1.0.0");
    m.hook<&Scaler::scale>(Event::before_step).writes(Region::hyper);
  }
  void scale(StepContext&) {}
};

struct SwapOption {
  std::string slot, type;
  std::vector<std::string> set;
  static void describe(Fields<SwapOption>& m) {
    m.option("slot", &SwapOption::slot, "the slot").required();
    m.option("type", &SwapOption::type, "the plugin");
    m.option("set", &SwapOption::set, "its options");
  }
};

/// Of rule.hpp, which brings LibTorch.
struct RuleOptions {
  std::string action = "report";
  std::optional<SwapOption> swap;
  static void describe(Fields<RuleOptions>& m) {
    m.option("action", &RuleOptions::action, "when it fires").one_of({"report", "stop", "lr_scale", "swap"});
    m.option("swap", &RuleOptions::swap, "what the action swap does");
  }
};

template <class T>
plugins::PluginFile file_of() {
  plugins::PluginFile file;
  ManifestData& data = file.manifest;  // as TRAINYARD_PLUGIN fills it in: these are never made
  DataWriter writer(data);
  writer.kind(T::kind.name, T::kind.revision);
  Fields<typename T::Common> common(writer, true);
  T::Common::describe(common);
  Manifest<typename T::Options> manifest(writer);
  T::describe(manifest);
  file.path = "lib" + file.manifest.name + ".so";
  return file;
}

struct NoOptions {};

/// A plugin without options of its own, with those of its kind.
template <class Common = NoCommon>
plugins::PluginFile plain_file(std::string kind, const std::string& name) {
  plugins::PluginFile file;
  DataWriter writer(file.manifest);
  writer.kind(kind, 1);
  Fields<Common> fields(writer, true);
  Common::describe(fields);
  Manifest<NoOptions>(writer).name(name).version("1.0.0");
  file.path = "lib" + name + ".so";
  return file;
}

inline plugins::Registry registry() {
  std::vector<plugins::PluginFile> files = {file_of<Sgd>(),
                                            file_of<AdamW>(),
                                            file_of<Csv>(),
                                            file_of<OneCsv>(),
                                            file_of<Mlp>(),
                                            file_of<Dropout>(),
                                            file_of<TopK>(),
                                            file_of<Ema>(),
                                            file_of<EarlyStopping>(),
                                            file_of<Pipe>(),
                                            file_of<Scaler>(),
                                            plain_file<RuleOptions>("rule", "watchful"),
                                            plain_file("recorder", "trial"),
                                            plain_file("loss", "cross_entropy"),
                                            plain_file("loss", "mse"),
                                            plain_file("metric", "accuracy"),
                                            plain_file("sampler", "random"),
                                            plain_file("sampler", "sequential"),
                                            plain_file("sampler", "weighted"),
                                            plain_file<NoCommon>("checkpointer", "full"),
                                            plain_file<ScheduleOperators>("schedule", "constant"),
                                            plain_file<NoCommon>("executor", "eager"),
                                            plain_file<ScheduleOperators>("schedule", "cosine"),
                                            plain_file<SinkCommon>("sink", "console"),
                                            file_of<Jsonl>(),
                                            plain_file<SinkCommon>("sink", "tensorboard"),
                                            plain_file("hook", "swa")};
  plugins::PluginFile needy = plain_file("hook", "gpu_only");
  needy.manifest.needs = {"cuda"};
  files.push_back(needy);
  files.push_back(plain_file("optimizer", "adam"));
  needy = plain_file("dataset", "free");
  needy.manifest.provides = {"free_rows"};
  files.push_back(needy);
  needy = plain_file("hook", "many_ranks");
  needy.manifest.needs = {"distributed"};
  files.push_back(needy);
  plugins::PluginFile twice = plain_file("hook", "twice");
  twice.path = "a/libtwice.so";
  files.push_back(twice);
  twice.path = "b/libtwice.so";
  twice.manifest.version = "2.0.0";
  files.push_back(twice);
  return plugins::Registry(std::move(files));
}

inline config::Resolution resolve(const std::vector<std::string>& files,
                                  const std::vector<std::string>& sets = {},
                                  const std::string& data_root = "data") {
  return config::resolve(config::load(files, sets, {data_root}), registry());
}

}  // namespace trainyard::test
