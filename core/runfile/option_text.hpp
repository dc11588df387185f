// Describes an option of a plugin or a key of the host: for messages, `plugins inspect` and `config schema`.
#pragma once

#include <string>

#include <trainyard/manifest_data.hpp>

namespace trainyard::config {

/// Names the type: "float", "list of strings", "list of schedule plugins".
std::string type_text(const OptionSpec& spec);

/// Names the range: ">= 1 and <= 64", "> 0", "" for none.
std::string range_text(const OptionSpec& spec);

/// Names the allowed words, "norm | value", or the range.
std::string allowed_text(const OptionSpec& spec);

/// Returns the default as in a run file; "required"; "" where the option is absent unless given.
std::string default_text(const OptionSpec& spec);

}  // namespace trainyard::config
