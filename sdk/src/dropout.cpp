#include <trainyard/dropout.hpp>

#include <algorithm>
#include <utility>

#include <trainyard/error.hpp>
#include <trainyard/pattern.hpp>

namespace trainyard {

void DropoutCommon::describe(Fields<DropoutCommon>& m) {
  m.option("p", &DropoutCommon::p, "probability that something is dropped").min(0.0).below(1.0);
  m.option("sites", &DropoutCommon::sites,
           "names of the places where it acts (trainyard model show), * and ? allowed; all without one");
  m.option("when", &DropoutCommon::when,
           "always; early: up to the cutoff, for models that underfit; late: from the cutoff on")
      .one_of({"always", "early", "late"});
  m.option("ramp", &DropoutCommon::ramp,
           "constant: p all that time; linear: rising to p at its end, or, early, falling from p to 0")
      .one_of({"constant", "linear"});
  m.option("cutoff", &DropoutCommon::cutoff, "where early dropout ends, or late dropout begins");
}

at::Tensor Dropout::apply(const at::Tensor&, std::size_t, const DropoutCall&) {
  throw PluginError("announces that it masks activations, and does not override Dropout::apply");
}

namespace {

template <class Place>
void switch_off(std::vector<Place>& places) {
  for (Place& place : places) place.active = false;
}

bool by_name(const DropoutSite& site) {
  return site.by_name;
}
bool by_name(const auto&) {
  return false;
}

/// Switches off the places that no pattern selects. Throws where a pattern selects none.
template <class Place>
void choose(std::vector<Place>& places, const std::vector<std::string>& patterns, const char* kind) {
  if (places.empty())
    throw ConfigError(std::string("the model has no ") + kind +
                      " where this dropout could act; drop [model.dropout] or take a model that has some");
  std::string names;
  for (const Place& place : places) names += (names.empty() ? "" : ", ") + place.id;
  switch_off(places);
  const auto activate = [&](const std::string& pattern, bool named) {
    bool any = false;
    for (Place& place : places)
      if (by_name(place) == named && fits(pattern, place.id)) place.active = any = true;
    return any;
  };
  if (patterns.empty() && !activate("*", false))
    throw ConfigError("the model's dropout sites act by name only; name some in model.dropout.sites: " +
                      names);
  for (const std::string& pattern : patterns) {
    if (activate(pattern, false) || activate(pattern, true)) continue;
    throw ConfigError("model.dropout.sites: \"" + pattern + "\" fits none of the model's: " + names);
  }
}

/// Switches off the places that the run does not select.
void choose(DropoutPlaces& places, Dropout& dropout) {
  const bool weights = dropout.masks_weights() != nullptr, cells = dropout.carries_states() != nullptr;
  const auto choose_or_switch_off = [&](bool its_kind, auto& all, const char* kind) {
    its_kind ? choose(all, dropout.common.sites, kind) : switch_off(all);
  };
  choose_or_switch_off(weights, places.weights, "weight");
  choose_or_switch_off(cells, places.cells, "recurrent layer");
  choose_or_switch_off(!weights && !cells, places.sites, "dropout site");
  const auto drop_inactive = [&](std::optional<std::size_t>& site) {
    if (site && !places.sites[*site].active) site.reset();
  };
  for (DropoutLinear& linear : places.linears) {
    drop_inactive(linear.input_site);
    drop_inactive(linear.output_site);
    linear.relu = linear.relu && linear.output_site;
  }
}

/// Returns the step at which early dropout ends, or late dropout begins.
std::int64_t cutoff_of(const DropoutCommon& common, const RunScale& scale) {
  if (common.when == "always") {
    if (common.ramp == "linear" && scale.total_steps == 0)
      throw ConfigError(
          "model.dropout.ramp = \"linear\" needs a run whose length is counted in steps; give "
          "trainer.max_duration another unit, or take ramp = \"constant\"");
    return 0;
  }
  const std::optional<std::int64_t> steps = common.cutoff.steps(scale);
  if (!steps)
    throw ConfigError("model.dropout.cutoff = \"" + common.cutoff.text() +
                      "\" cannot be converted to steps of this run; use ba");
  return *steps;
}

}  // namespace

DropoutPlan::DropoutPlan(Dropout& dropout, DropoutPlaces places, const RunScale& scale)
    : dropout_(&dropout),
      common_(dropout.common),
      places_(std::move(places)),
      cutoff_(cutoff_of(common_, scale)),
      total_(scale.total_steps) {
  choose(places_, dropout);
  dropout.open(places_);
}

double DropoutPlan::rate(std::int64_t step) const {
  const bool early = common_.when == "early";
  if (common_.when != "always" && early != (step < cutoff_)) return 0.0;
  if (common_.ramp == "constant") return common_.p;
  const std::int64_t first = early || common_.when == "always" ? 0 : cutoff_;
  const std::int64_t last = (early ? cutoff_ : std::max(total_, first + 1)) - 1;
  if (last <= first) return common_.p;
  const double done =
      std::clamp(static_cast<double>(step - first) / static_cast<double>(last - first), 0.0, 1.0);
  return common_.p * (early ? 1.0 - done : done);
}

}  // namespace trainyard
