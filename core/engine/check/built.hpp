// A run that is built in this process, with nothing around it: no folder, no sinks, no checkpoints.
#pragma once

#include <utility>

#include <trainyard/state.hpp>

#include "core/engine/check/subject.hpp"
#include "core/engine/train/run.hpp"

namespace trainyard::check {

class Built {
 public:
  explicit Built(const Subject& subject) : subject_(subject), run_(make(subject)) {
    run_.build_model();
    run_.build_loop({});
  }
  void fit() { run_.loop().fit(); }
  Plugin& plugin() {
    for (train::ActivePlugin& each : run_.plugins())
      if (each.file().path == subject_.file.path) return each.as<Plugin>();
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
  static train::Run make(const Subject& subject) {
    config::RunConfig config = valid(subject, subject.run->text(), {});
    config.run.output_dir = fresh_folder(subject);
    return {std::move(config), subject.registry};
  }
  const Subject& subject_;
  train::Run run_;
};

}  // namespace trainyard::check
