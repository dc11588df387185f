// Values to try an option with: at its bounds, just beyond, of other types, and at random. Torch-free.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <trainyard/manifest_data.hpp>

namespace trainyard::check {

/// A text for a value, as a run file has it, and whether the option may hold it.
struct Trial {
  std::string text;
  bool allowed;
};

/// Values of one element of an option: at its bounds, just beyond, and of other types.
std::vector<Trial> trials(const OptionSpec& option);

/// A value of one element that its manifest allows. Empty for a string without choices and for a table, of which a
/// manifest does not say what is sensible.
std::string random_value(const OptionSpec& option, std::mt19937_64& dice);

/// "[element]", or of as many as the list has to have.
std::string as_list(const std::string& element, std::int64_t count = 1);

/// The assignment that gives an option (or a field deep in one) a value: "name = value"; of a list, all of it.
using Written = std::function<std::string(const std::string& value)>;

/// Visits every option, fields of tables included. `filling`: a value for a field that must be given beside the one
/// that is visited.
void each_option(const std::vector<OptionSpec>& options,
                 const std::function<std::string(const OptionSpec&)>& filling,
                 const std::function<void(const OptionSpec&, const Written&)>& visit);

}  // namespace trainyard::check
