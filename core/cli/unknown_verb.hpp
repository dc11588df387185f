// A word of the command line that is no verb, where one was expected.
#pragma once

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

namespace trainyard::cli {

/// What to tell of it, with the verbs that there are: "trainyard ctl: there is no verb ...". Nothing where
/// the parse failed of something else. `app`: after the parse.
std::optional<std::string> unknown_verb(const CLI::App& app);

}  // namespace trainyard::cli
