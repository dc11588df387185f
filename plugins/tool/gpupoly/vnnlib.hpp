// Properties of networks in VNN-LIB 1.0 (https://www.vnnlib.org): SMT-LIB text that declares inputs X_i and
// outputs Y_i and asserts what would violate the property. The property holds where no input satisfies it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpupoly {

/// Coefficients of all outputs and a constant, of which each decimal that is no double is known as the two
/// doubles around it. True of outputs where the sum is 0 or less.
struct Atom {
  std::vector<double> lower, upper;  ///< one an output
  double constant_lower = 0.0, constant_upper = 0.0;
};

/// Inputs of a box, rounded outward, with outputs of which all atoms are true: one way to violate a property.
struct Case {
  std::vector<double> lower, upper;  ///< one an input, in the graph's order
  std::vector<Atom> atoms;           ///< none: any output violates it
};

struct Property {
  std::size_t inputs = 0, outputs = 0;
  std::vector<Case> cases;  ///< any of them violates it; boxes without a point are left out
};

/// Throws DataError that begins with `name`, line and column, and says what was found and expected. Memory is
/// bounded by the text's size and by some millions of numbers for all cases.
Property parse_property(std::string_view text, const std::string& name);
/// Of a regular file.
Property read_property(const std::string& path);

/// An upper bound of the atom's sum for these outputs; with one of 0 or less the atom is true.
double at_most(const Atom& atom, const std::vector<double>& outputs);

}  // namespace gpupoly
