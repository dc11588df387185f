// Makes option values for tests: at bounds, just beyond, of other types, and random. Torch-free.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <trainyard/manifest_data.hpp>

namespace trainyard::check {

/// A value in the text of a run file, and whether the option may hold it.
struct Trial {
  std::string text;
  bool allowed;
};

/// Returns values of one element of an option: at its bounds, just beyond, and of other types.
std::vector<Trial> trials(const OptionSpec& option);

/// Returns a random value of one element that the manifest allows. Empty for a string without choices and for
/// a table, for which a manifest does not tell sensible values.
std::string random_value(const OptionSpec& option, std::mt19937_64& dice);

/// Returns "[element]", or a list of the `count` elements that it must have.
std::string as_list(const std::string& element, std::int64_t count = 1);

/// Returns an assignment to an option or a field deep in one: "name = value"; of a list, all of it.
using Written = std::function<std::string(const std::string& value)>;

/// Visits every option, fields of tables included. `filling` gives a value for a required field beside the
/// visited one.
void each_option(const std::vector<OptionSpec>& options,
                 const std::function<std::string(const OptionSpec&)>& filling,
                 const std::function<void(const OptionSpec&, const Written&)>& visit);

}  // namespace trainyard::check
