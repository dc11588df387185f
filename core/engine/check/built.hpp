// A run that is built in this process, without checkpoints and with no sink but the one under test.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/sink.hpp>
#include <trainyard/state.hpp>

#include "core/engine/check/subject.hpp"
#include "core/engine/train/run.hpp"

namespace trainyard::check {

class Built {
 public:
  /// `sets` changes the run file. `host` observes the loop and must outlive this object.
  explicit Built(const Subject& subject, const std::vector<std::string>& sets = {},
                 train::LoopHost& host = train::no_host)
      : subject_(subject), run_(make(subject, sets)) {
    run_.build_model();
    train::LoopParts parts;
    parts.host = &host;
    run_.build_loop(std::move(parts));
  }
  /// Trains the run. A sink under test is open meanwhile, but gets no records.
  void fit() {
    const bool sink = subject_.file.manifest.kind == "sink";
    if (sink)
      plugin<Sink>().open({.name = run_.config().run.name, .directory = run_.config().run.output_dir});
    run_.loop().fit();
    if (sink) plugin<Sink>().close();
  }
  template <class T = Plugin>
  T& plugin() {
    for (train::ActivePlugin& each : run_.plugins())
      if (each.file().path == subject_.file.path) return each.as<T>();
    throw Error(ExitCode::internal, "the run has no such plugin");
  }
  State saved() {
    State state;
    state.owner = title(subject_.file);
    state.version = subject_.file.manifest.version;
    StateWriter writer(state);
    plugin().save(writer);
    return state;
  }

 private:
  static train::Run make(const Subject& subject, const std::vector<std::string>& sets) {
    config::RunConfig config = valid(subject, subject.run->text(), sets);
    config.run.output_dir = fresh_folder(subject);
    std::filesystem::create_directories(config.run.output_dir);
    return {std::move(config), subject.registry};
  }
  const Subject& subject_;
  train::Run run_;
};

}  // namespace trainyard::check
