#include "detectors.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <trainyard/error.hpp>

#include "boundary.hpp"
#include "clusters.hpp"
#include "components.hpp"
#include "distributions.hpp"
#include "isolation.hpp"
#include "lib/printed.hpp"
#include "proximity.hpp"

namespace screen {
namespace {

using Made = std::unique_ptr<Detector>;

std::size_t count_of(double parameter) {
  return static_cast<std::size_t>(parameter);
}

std::string names_of_families() {
  std::string names;
  for (const Family& family : families()) names += (names.empty() ? "" : ", ") + std::string(family.name);
  return names;
}

}  // namespace

// Each law is the least-squares fit to timings of five tables of 1,000 to 6,000 rows and 8 to 40 columns on one core
// that had other work, the best of three each. Work that they get wrong is taken over by idle workers.
const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {.name = "knn",
       .summary = "distance to the k-th neighbour",
       .parameter = 5,
       .least = 1,
       .most = 10'000,
       .projects = true,
       .rows_beyond_parameter = true,
       .cost = {-15.22, 1.67, -0.28},
       .make = [](double k) -> Made { return std::make_unique<NearestDistance>(count_of(k), false); }},
      {.name = "knn_mean",
       .summary = "mean distance to k neighbours",
       .parameter = 5,
       .least = 1,
       .most = 10'000,
       .projects = true,
       .rows_beyond_parameter = true,
       .cost = {-18.76, 1.89, 0.28},
       .make = [](double k) -> Made { return std::make_unique<NearestDistance>(count_of(k), true); }},
      {.name = "lof",
       .summary = "density beside that of k neighbours",
       .parameter = 20,
       .least = 1,
       .most = 10'000,
       .projects = true,
       .rows_beyond_parameter = true,
       .cost = {-19.87, 2.15, 0.25},
       .make = [](double k) -> Made { return std::make_unique<LocalOutlierFactor>(count_of(k)); }},
      {.name = "abod",
       .summary = "variance of the angles to pairs of k neighbours",
       .parameter = 5,
       .least = 2,
       .most = 1000,
       .projects = true,
       .rows_beyond_parameter = true,
       .cost = {-23.49, 2.56, 0.21},
       .make = [](double k) -> Made { return std::make_unique<AngleBased>(count_of(k)); }},
      {.name = "hbos",
       .summary = "histograms of so many bins",
       .parameter = 10,
       .least = 2,
       .most = 100'000,
       .cost = {-18.21, 1.0, 1.02},
       .make = [](double bins) -> Made { return std::make_unique<Histograms>(count_of(bins)); }},
      {.name = "iforest",
       .summary = "depth in so many isolating trees",
       .parameter = 100,
       .least = 1,
       .most = 100'000,
       .cost = {-4.85, 0.26, -0.15},
       .make = [](double trees) -> Made { return std::make_unique<IsolationForest>(count_of(trees)); }},
      {.name = "copod",
       .summary = "tails of each column, by its skewness",
       .cost = {-19.72, 1.59, 1.04},
       .make = [](double) -> Made { return std::make_unique<Tails>(Tails::Rule::copod); }},
      {.name = "ecod",
       .summary = "the largest tail of each column",
       .cost = {-19.62, 1.47, 1.25},
       .make = [](double) -> Made { return std::make_unique<Tails>(Tails::Rule::ecod); }},
      {.name = "ecod_sums",
       .summary = "the largest of three sums of tails over columns",
       .cost = {-21.97, 1.75, 1.37},
       .make = [](double) -> Made { return std::make_unique<Tails>(Tails::Rule::ecod_sums); }},
      {.name = "cblof",
       .summary = "distance to the centre of one of so many clusters",
       .parameter = 8,
       .least = 1,
       .most = 10'000,
       .rows_beyond_parameter = true,
       .cost = {-24.94, 2.14, 1.16},
       .make = [](double clusters) -> Made { return std::make_unique<ClusterDistance>(count_of(clusters)); }},
      {.name = "ocsvm",
       .summary = "one-class support vector machine, radial kernel, at most this share outside",
       .parameter = 0.5,
       .least = 1e-6,
       .most = 1,
       .whole = false,
       .cost = {-23.24, 2.57, 0.35},
       .make = [](double nu) -> Made { return std::make_unique<Boundary>(nu); }},
      {.name = "pca",
       .summary = "distances along principal components",
       .cost = {-15.29, 0.74, 1.16},
       .make = [](double) -> Made { return std::make_unique<Components>(); }},
  };
  return all;
}

const Family& find_family(std::string_view name) {
  const auto found = std::ranges::find(families(), name, &Family::name);
  if (found == families().end())
    throw trainyard::ConfigError("there is no detector \"" + std::string(name) + "\"; there are " +
                                 names_of_families());
  return *found;
}

std::string Spec::text() const {
  std::string name(family->name);
  if (family->most == 0.0) return name;
  return name + ":" +
         (family->whole ? std::to_string(count_of(parameter)) : trainyard::lib::shortest(parameter));
}

std::size_t Spec::rows_needed() const {
  return family->rows_beyond_parameter ? std::max<std::size_t>(2, count_of(parameter) + 1) : 2;
}

Spec parse_spec(const std::string& text) {
  const std::size_t colon = text.find(':');
  Spec spec{&find_family(std::string_view(text).substr(0, colon)), 0.0};
  const Family& family = *spec.family;
  spec.parameter = family.parameter;
  if (colon == std::string::npos) return spec;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, spec.parameter);
  if (family.most == 0.0)
    throw trainyard::ConfigError("detector \"" + text + "\": " + std::string(family.name) +
                                 " has no number: leave it out");
  const bool whole = spec.parameter == std::floor(spec.parameter);
  if (error != std::errc() || rest != end ||
      !(spec.parameter >= family.least && spec.parameter <= family.most) || (family.whole && !whole))
    throw trainyard::ConfigError("detector \"" + text + "\": expected " +
                                 (family.whole ? "a whole number" : "a number") + " from " +
                                 trainyard::lib::shortest(family.least) + " to " +
                                 trainyard::lib::shortest(family.most) + " behind the colon");
  return spec;
}

}  // namespace screen
