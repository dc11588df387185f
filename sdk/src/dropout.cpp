#include <trainyard/dropout.hpp>

#include <algorithm>

#include <trainyard/error.hpp>
#include <trainyard/pattern.hpp>

namespace trainyard {

at::Tensor Dropout::apply(const at::Tensor&, std::size_t, const DropoutCall&) {
  throw PluginError("announces that it masks activations, and does not override Dropout::apply");
}

at::Tensor Dropout::mask_weight(const at::Tensor&, std::size_t, const DropoutCall&) {
  throw PluginError("masks weights, and does not override Dropout::mask_weight");
}

at::Tensor Dropout::evaluate_linear(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                    const Activation&, std::size_t, const DropoutCall&) {
  throw PluginError("evaluates linear layers, and does not override Dropout::evaluate_linear");
}

bool Dropout::fuses(std::size_t) const {
  return false;
}

at::Tensor Dropout::masked_linear(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                  std::size_t, const DropoutCall&) {
  throw PluginError("fuses linear layers, and does not override Dropout::masked_linear");
}

at::Tensor Dropout::carry(const at::Tensor&, const at::Tensor&, std::size_t, bool, std::int64_t,
                          const DropoutCall&) {
  throw PluginError("carries states, and does not override Dropout::carry");
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

/// Switches off the places that no pattern means. Throws where a pattern means none.
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

}  // namespace

DropoutPlaces Dropout::chosen(DropoutPlaces places) const {
  if (masks_weights())
    choose(places.weights, common.sites, "weight");
  else
    switch_off(places.weights);
  if (carries())
    choose(places.cells, common.sites, "recurrent layer");
  else
    switch_off(places.cells);
  if (!masks_weights() && !carries())
    choose(places.sites, common.sites, "dropout site");
  else
    switch_off(places.sites);
  const auto drop_inactive = [&](std::optional<std::size_t>& site) {
    if (site && !places.sites[*site].active) site.reset();
  };
  for (DropoutLinear& linear : places.linears) {
    drop_inactive(linear.input_site);
    drop_inactive(linear.output_site);
    linear.relu = linear.relu && linear.output_site;
  }
  return places;
}

void Dropout::place(const RunScale& scale) {
  total_ = scale.total_steps;
  if (common.when == "always") {
    if (common.ramp == "linear" && total_ == 0)
      throw ConfigError(
          "model.dropout.ramp = \"linear\" needs a run whose length is counted in steps; give "
          "trainer.max_duration another unit, or take ramp = \"constant\"");
    return;
  }
  const std::optional<std::int64_t> steps = common.cutoff.steps(scale);
  if (!steps)
    throw ConfigError("model.dropout.cutoff = \"" + common.cutoff.text() +
                      "\" cannot be converted to steps of this run; use ba");
  cutoff_ = *steps;
}

double Dropout::rate(std::int64_t step) const {
  const bool early = common.when == "early";
  if (common.when != "always" && early != (step < cutoff_)) return 0.0;
  if (common.ramp == "constant") return common.p;
  const std::int64_t first = early || common.when == "always" ? 0 : cutoff_;
  const std::int64_t last = (early ? cutoff_ : std::max(total_, first + 1)) - 1;
  if (last <= first) return common.p;
  const double done =
      std::clamp(static_cast<double>(step - first) / static_cast<double>(last - first), 0.0, 1.0);
  return common.p * (early ? 1.0 - done : done);
}

}  // namespace trainyard
