// Made-up samples whose class can be learnt: a class has a prototype, some features out of all, and a sample
// of it some of those and some that are noise, each of value 1. Classes are drawn by the law of Zipf and
// Mandelbrot.
#pragma once

#include <cstdint>
#include <string>

#include "samples.hpp"

namespace xc {

struct Recipe {
  std::int64_t size, seed;
  std::int64_t features, classes;
  std::int64_t prototype;   ///< features of a class
  std::int64_t own, noise;  ///< of a sample: features of the prototype, and others
  double exponent, shift;   ///< of the classes
};

/// Sample i is a function of the recipe but its size, the split, and i; prototypes are those of all splits.
/// Throws ConfigError where there are not as many features as wanted.
NewSamples make_samples(const Recipe& recipe, const std::string& split);

}  // namespace xc
