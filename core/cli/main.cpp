// The trainyard command. A thin front: it checks everything that can be checked without LibTorch, and hands
// the rest to the engine.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>

#include <trainyard/error.hpp>
#include <trainyard/version.hpp>

#include "core/cli/ckpt_diff.hpp"
#include "core/cli/ckpt_verbs.hpp"
#include "core/cli/engine_library.hpp"
#include "core/cli/live_verbs.hpp"
#include "core/cli/order_of_run.hpp"
#include "core/cli/plugins_verbs.hpp"
#include "core/cli/run_file.hpp"
#include "core/cli/run_state.hpp"
#include "core/cli/schedule_verb.hpp"
#include "core/cli/unknown_verb.hpp"
#include "core/config/print.hpp"
#include "core/config/schema.hpp"
#include "core/control/supervisor.hpp"

namespace trainyard::cli {
namespace {

constexpr int config_exit = static_cast<int>(ExitCode::config);

/// One verb: its options live as long as the parser, its action returns the exit code.
struct Command {
  RunFileOptions run_file;
  std::string format = "text";
  std::function<int(Command&)> action;

  bool json() const { return format == "json"; }
};

void add_run_file(CLI::App& verb, Command& command) {
  verb.add_option("run", command.run_file.files, "run file; further ones are laid over the first")
      ->required()
      ->check(CLI::ExistingFile);
  verb.add_option("--set", command.run_file.sets, "change a key: --set optimizer.lr=0.1")
      ->allow_extra_args(false);
  verb.add_option("--plugins", command.run_file.plugin_folders, "another folder of plugins")
      ->allow_extra_args(false);
}

void add_format(CLI::App& verb, Command& command) {
  verb.add_option("--format", command.format, "text or json")->check(CLI::IsMember({"text", "json"}));
}

template <class Action>
int with_run(const RunFileOptions& options, Action&& action) {
  const std::optional<RunFile> run = read_run_file(options);
  if (!run) return config_exit;
  return action(*run);
}

/// The same command as a child: first as it was given, then such that it goes on.
int supervised(const std::string& directory, int argc, char** argv) {
  control::Supervised run{.directory = directory};
  run.first = {std::filesystem::read_symlink("/proc/self/exe").string()};
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) != "--supervise") run.first.emplace_back(argv[i]);
  run.again = run.first;
  std::erase(run.again, "--overwrite");
  run.again.insert(run.again.end(), {"--set", "run.resume=auto"});
  return control::supervise(run);
}

int diff(const Command& command) {
  std::vector<Table> sides;
  for (const std::string& file : command.run_file.files) {
    RunFileOptions one = command.run_file;
    one.files = {file};
    const std::optional<RunFile> run = read_run_file(one);
    if (!run) return config_exit;
    sides.push_back(run->config.resolved);
  }
  for (const config::Difference& each : config::diff(sides.at(0), sides.at(1)))
    std::printf("%s\n  - %s\n  + %s\n", each.key.c_str(), each.a.c_str(), each.b.c_str());
  return 0;
}

/// Benchmarks are programs of their own: they hold hand-written rivals, which the engine must not.
int bench(const std::string& name, const std::vector<std::string>& arguments) {
  const std::string program = home() + "/bin/bench_" + name;
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  throw ConfigError("there is no " + program +
                    ": build the benchmarks with cmake --build build/release --target bench");
}

int run_command_line(int argc, char** argv) {
  CLI::App app("Trains LibTorch models from run files; every strategy of a run is a plugin.", "trainyard");
  app.require_subcommand(1);
  app.get_formatter()->column_width(36);
  app.set_version_flag("--version", std::string("trainyard ") + TRAINYARD_VERSION + ", SDK " +
                                        TRAINYARD_SDK_VERSION + ", LibTorch " + TRAINYARD_LIBTORCH_VERSION);
  Command command;
  train::TrainOptions train_options;
  std::string weights, what, other, bench_name;
  bool origins = false, supervise = false, values = false;

  CLI::App* train = app.add_subcommand("train", "train a model");
  add_run_file(*train, command);
  train->add_flag("--overwrite", train_options.overwrite, "replace the run directory if it exists");
  train->add_flag("-q,--quiet", train_options.quiet, "print errors only");
  train->add_flag(
      "--supervise", supervise,
      "start again from the last checkpoint where a plugin brings the run down, without the plugin");
  train->add_flag_callback(
      "--strict-state", [&] { command.run_file.sets.push_back("guard.strict_state=true"); },
      "find writes that hooks did not declare; slow");
  const auto train_here = [&](const RunFile& run) {
    control::follow_supervisor();
    train_options.resolved_toml = config::toml_file(run.config.resolved);
    train_options.color = isatty(STDOUT_FILENO) == 1;
    return engine().train(run.config, run.registry, train_options);
  };
  train->callback([&] {
    command.action = [&](Command& self) {
      return with_run(self.run_file, [&](const RunFile& run) {
        return supervise ? supervised(run.config.output_dir, argc, argv) : train_here(run);
      });
    };
  });

  CLI::App* resume = app.add_subcommand("resume", "go on with a run from its newest checkpoint");
  resume->add_option("run", what, "the run's directory")->required()->check(CLI::ExistingDirectory);
  resume->add_option("--set", command.run_file.sets, "change a key: --set trainer.max_duration=20ep")
      ->allow_extra_args(false);
  resume->add_option("--plugins", command.run_file.plugin_folders, "another folder of plugins")
      ->allow_extra_args(false);
  resume->add_flag("-q,--quiet", train_options.quiet, "print errors only");
  resume->callback([&] {
    command.action = [&](Command& self) {
      self.run_file.files = {what + "/config.toml"};
      for (const std::string& set : {"run.output_dir=" + what, std::string("run.resume=must")})
        self.run_file.sets.push_back(set);
      return with_run(self.run_file, train_here);
    };
  });

  CLI::App* eval = app.add_subcommand("eval", "evaluate saved weights on the run's val and test data");
  add_run_file(*eval, command);
  add_format(*eval, command);
  eval->add_option("--weights", weights, "safetensors file; by default that of the run directory");
  eval->callback([&] {
    command.action = [&](Command& self) {
      return with_run(self.run_file, [&](const RunFile& run) {
        const std::string file = weights.empty() ? run.config.output_dir + "/model.safetensors" : weights;
        return engine().evaluate(run.config, run.registry, file, self.json());
      });
    };
  });

  CLI::App* validate =
      app.add_subcommand("validate", "check a run file and report everything that is wrong with it");
  add_run_file(*validate, command);
  add_format(*validate, command);
  validate->callback([&] {
    command.action = [](Command& self) {
      self.run_file.json = self.json();
      return with_run(self.run_file, [&](const RunFile& run) {
        if (!self.json()) std::printf("%s: valid\n", run.config.name.c_str());
        return 0;
      });
    };
  });

  CLI::App* plan =
      app.add_subcommand("plan", "show hook order, steps, batch arithmetic and memory before training");
  add_run_file(*plan, command);
  plan->callback([&] {
    command.action = [](Command& self) {
      return with_run(self.run_file, [](const RunFile& run) {
        std::printf("Order of hooks\n%s", order_of(run.config, run.registry).text().c_str());
        std::fflush(stdout);
        return engine().plan(run.config, run.registry);
      });
    };
  });

  CLI::App* configs = app.add_subcommand("config", "show, compare and explain run files");
  configs->require_subcommand(1);
  CLI::App* show = configs->add_subcommand("show", "the resolved file, defaults filled in");
  add_run_file(*show, command);
  show->add_flag("--origins", origins, "say where each value comes from");
  show->callback([&] {
    command.action = [&](Command& self) {
      return with_run(self.run_file, [&](const RunFile& run) {
        std::fputs(config::toml_file(run.config.resolved, origins).c_str(), stdout);
        return 0;
      });
    };
  });
  CLI::App* schema =
      configs->add_subcommand("schema", "every key of the host with type, default and meaning");
  add_format(*schema, command);
  schema->callback([&] {
    command.action = [](Command& self) {
      std::fputs((self.json() ? config::schema_json() : config::schema_text()).c_str(), stdout);
      return 0;
    };
  });
  CLI::App* differences = configs->add_subcommand("diff", "keys in which two resolved run files differ");
  add_run_file(*differences, command);
  differences->get_option("run")->expected(2)->description("two run files");
  differences->callback([&] { command.action = diff; });

  CLI::App* plugins = app.add_subcommand("plugins", "list and inspect plugins");
  plugins->require_subcommand(1);
  CLI::App* list = plugins->add_subcommand("list", "all plugins, by kind");
  CLI::App* inspect = plugins->add_subcommand("inspect", "a plugin's options, events and build");
  inspect->add_option("plugin", what, "name, kind/name, or file")->required();
  for (CLI::App* verb : {list, inspect}) {
    add_format(*verb, command);
    verb->add_option("--plugins", command.run_file.plugin_folders, "another folder of plugins")
        ->allow_extra_args(false);
  }
  const auto format = [](const Command& self) { return self.json() ? Format::json : Format::text; };
  list->callback([&] {
    command.action = [&](Command& self) {
      const auto registry = plugins::Registry::scan(plugin_folders(self.run_file.plugin_folders));
      return static_cast<int>(plugins_list(registry, format(self), std::cout));
    };
  });
  inspect->callback([&] {
    command.action = [&](Command& self) {
      const auto registry = plugins::Registry::scan(plugin_folders(self.run_file.plugin_folders));
      return static_cast<int>(plugins_inspect(registry, what, format(self), std::cout, std::cerr));
    };
  });

  CLI::App* ckpt = app.add_subcommand("ckpt", "look into checkpoints and check them");
  ckpt->require_subcommand(1);
  const std::string place = "run directory, folder of checkpoints, or checkpoint";
  const auto add_ckpt = [&](const char* name, const char* help, auto action) {
    CLI::App* verb = ckpt->add_subcommand(name, help);
    verb->add_option("path", what, place)->required();
    verb->callback([&command, &what, &format, action] {
      command.action = [&what, &format, action](Command& self) {
        return static_cast<int>(action(what, format(self), std::cout));
      };
    });
    return verb;
  };
  add_format(*add_ckpt("ls", "the checkpoints, oldest first", ckpt_ls), command);
  add_format(*add_ckpt("inspect", "what the newest of them holds", ckpt_inspect), command);
  add_format(*add_ckpt("verify", "read every byte and name every damage", ckpt_verify), command);
  CLI::App* ckpt_compare = add_ckpt("diff", "scalars and tensors in which two differ",
                                    [&](const std::string& path, Format chosen, std::ostream& out) {
                                      return ckpt_diff(path, other, values, chosen, out);
                                    });
  ckpt_compare->add_option("other", other, place)->required();
  ckpt_compare->add_flag("--values", values, "say by how much elements of tensors differ");
  add_format(*ckpt_compare, command);
  add_ckpt("convert", "copy the weights of the newest into one safetensors file",
           [&](const std::string& path, Format, std::ostream& out) { return ckpt_convert(path, other, out); })
      ->add_option("file", other, "safetensors file to write")
      ->required();

  CLI::App* model = app.add_subcommand("model", "look at models");
  model->require_subcommand(1);
  CLI::App* model_show =
      model->add_subcommand("show", "layers, shapes, parameters, multiply-adds, dropout sites");
  add_run_file(*model_show, command);
  model_show->callback([&] {
    command.action = [](Command& self) {
      return with_run(self.run_file,
                      [](const RunFile& run) { return engine().model_show(run.config, run.registry); });
    };
  });

  CLI::App* schedule = app.add_subcommand("schedule", "look at schedules");
  schedule->require_subcommand(1);
  CLI::App* plot = schedule->add_subcommand("plot", "learning rate and momentum over the steps of a run");
  add_run_file(*plot, command);
  add_format(*plot, command);
  plot->add_option("--svg", what, "file to draw them into, as an SVG");
  plot->callback([&] {
    command.action = [&](Command& self) {
      return with_run(self.run_file, [&](const RunFile& run) {
        return schedule_plot(run.config, run.registry, self.json() ? Format::json : Format::text, what);
      });
    };
  });

  CLI::App* rules = app.add_subcommand("rules", "look at runs with rules");
  rules->require_subcommand(1);
  CLI::App* check =
      rules->add_subcommand("check", "show rules what was recorded of a run, and print what fires");
  check->footer("Exit codes: 0 nothing fires, 5 something does, 7 nothing does, but a rule could not look.");
  check->add_option("run", what, "the run's directory, or a name below runs/")->required();
  check->add_option("--config", other, "run file whose [[rules]] look, in place of the run's own");
  check->add_option("--set", command.run_file.sets, "change a key: --set rules.0.threshold=1e-6")
      ->allow_extra_args(false);
  check->add_option("--plugins", command.run_file.plugin_folders, "another folder of plugins")
      ->allow_extra_args(false);
  add_format(*check, command);
  check->callback([&] {
    command.action = [&](Command& self) {
      const std::string directory = find_run(what);
      self.run_file.files = {other.empty() ? directory + "/config.toml" : other};
      return with_run(self.run_file, [&](const RunFile& run) {
        return engine().check_rules(run.config, run.registry, directory + "/trial", self.json());
      });
    };
  });

  CLI::App* benchmark = app.add_subcommand("bench", "measure the host against hand-written loops");
  benchmark
      ->add_option("name", bench_name,
                   "loop, dispatch, guards, startup, whole, loader, graph_forward, checkpoint, swap, "
                   "schedule or dropout")
      ->required();
  benchmark->allow_extras();
  benchmark->callback([&] {
    command.action = [&, benchmark](Command&) { return bench(bench_name, benchmark->remaining()); };
  });

  CLI::App* doctor = app.add_subcommand("doctor", "check this installation");
  doctor->callback([&] {
    command.action = [](Command& self) {
      const auto registry = plugins::Registry::scan(plugin_folders(self.run_file.plugin_folders));
      std::printf("Trainyard      %s, SDK %s, %s\n", TRAINYARD_VERSION, TRAINYARD_SDK_VERSION,
                  home().c_str());
      std::printf("plugins        %zu usable, %zu refused\n", registry.files().size(),
                  registry.refusals().size());
      for (const plugins::Refusal& refusal : registry.refusals())
        std::printf("  %s\n", refusal.message.c_str());
      const auto space = std::filesystem::space(std::filesystem::current_path());
      std::printf("disk           %.1f GiB free here\n", static_cast<double>(space.available) / (1 << 30));
      return engine().doctor();
    };
  });

  std::function<int()> live;
  add_live_verbs(app, live);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help, version
    if (const std::optional<std::string> message = unknown_verb(app))
      std::fprintf(stderr, "%s\n", message->c_str());
    else
      app.exit(error, std::cout, std::cerr);
    return config_exit;
  }
  return live ? live() : command.action(command);
}

}  // namespace
}  // namespace trainyard::cli

int main(int argc, char** argv) {
  try {
    return trainyard::cli::run_command_line(argc, argv);
  } catch (const trainyard::Error& error) {
    std::fprintf(stderr, "trainyard: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainyard: internal error: %s\n", error.what());
    return static_cast<int>(trainyard::ExitCode::internal);
  }
}
