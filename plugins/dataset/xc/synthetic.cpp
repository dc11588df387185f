#include "synthetic.hpp"

#include <trainyard/error.hpp>
#include <trainyard/random.hpp>

#include "../zipf.hpp"

namespace xc {
namespace {

using namespace trainyard;

/// `count` different numbers in [0, bound), all sets being as likely, from as many elements of the stream
/// (Floyd's algorithm: Bentley, "Programming pearls", CACM 1987); ascending.
void draw_set(const RandomStream& stream, std::uint64_t first, std::int64_t count, std::int64_t bound,
              std::vector<std::int32_t>& out) {
  out.clear();
  for (std::int64_t last = bound - count; last < bound; ++last) {
    const auto drawn = static_cast<std::int32_t>(stream.below(first++, static_cast<std::uint64_t>(last + 1)));
    const bool taken = std::find(out.begin(), out.end(), drawn) != out.end();
    out.push_back(taken ? static_cast<std::int32_t>(last) : drawn);
  }
  std::sort(out.begin(), out.end());
}

void check(const Recipe& recipe) {
  const auto most = [](const std::string& what, std::int64_t found, const std::string& of,
                       std::int64_t bound) {
    if (found > bound)
      throw ConfigError(what + " is " + std::to_string(found) + ", more than the " + std::to_string(bound) +
                        " " + of);
  };
  most("prototype", recipe.prototype, "features", recipe.features);
  most("own", recipe.own, "features of a prototype", recipe.prototype);
  most("own + noise", recipe.own + recipe.noise, "features", recipe.features);
}

}  // namespace

NewSamples make_samples(const Recipe& recipe, const std::string& split) {
  check(recipe);
  const auto seed = static_cast<std::uint64_t>(recipe.seed);
  const RandomStream prototypes(seed, "xc/prototypes"), samples(seed, "xc/" + split);
  const datasets::Zipf classes(recipe.classes, recipe.exponent, recipe.shift);
  NewSamples made{.features = recipe.features, .classes = recipe.classes};
  std::vector<std::int32_t> prototype, own, noise;
  for (std::int64_t i = 0; i < recipe.size; ++i) {
    const RandomStream stream = samples.at(static_cast<std::uint64_t>(i));
    const std::int64_t label = classes.at(stream.uniform(0));
    draw_set(prototypes.at(static_cast<std::uint64_t>(label)), 0, recipe.prototype, recipe.features,
             prototype);
    draw_set(stream.at(static_cast<std::uint64_t>(i), 1), 0, recipe.own, recipe.prototype, own);
    for (std::int32_t& each : own) each = prototype[static_cast<std::size_t>(each)];
    // Of the features without those: each that is not below one of them moves up by it.
    draw_set(stream.at(static_cast<std::uint64_t>(i), 2), 0, recipe.noise, recipe.features - recipe.own,
             noise);
    for (const std::int32_t each : own)
      for (std::int32_t& other : noise) other += other >= each;
    own.insert(own.end(), noise.begin(), noise.end());
    std::sort(own.begin(), own.end());
    made.index.insert(made.index.end(), own.begin(), own.end());
    made.value.resize(made.index.size(), 1.0f);
    made.label.push_back(static_cast<std::int32_t>(label));
    made.end_sample();
  }
  return made;
}

}  // namespace xc
