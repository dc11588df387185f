// The verbs that look at runs and talk to them: ctl, monitor, runs.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace trainyard::cli {

/// Once `app` has parsed one of these verbs, `chosen` does it and gives the exit code. Both must live as long
/// as the parser.
void add_live_verbs(CLI::App& app, std::function<int()>& chosen);

}  // namespace trainyard::cli
