// Runs a verb for the front, which sees exit codes alone.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <exception>

#include <trainyard/error.hpp>

#include "core/engine/events/exit_watch.hpp"
#include "core/engine/train/active_plugin.hpp"

namespace trainyard::train {

/// Runs a verb; an error that leaves it is printed as one message and becomes the exit code of its class. If
/// threads are left, ends the process without taking the libraries down below them.
template <class Verb>
int reported(Verb&& verb) {
  int code = static_cast<int>(ExitCode::internal);
  try {
    const report::ExitWatch exit_watch;
    code = verb();
  } catch (const Error& error) {
    std::fprintf(stderr, "trainyard: %s\n", error.what());
    code = static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainyard: internal error: %s\n", error.what());
  }
  if (!left_threads()) return code;
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace trainyard::train
