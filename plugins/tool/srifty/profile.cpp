#include "profile.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include <trainyard/error.hpp>

#include "catalogue.hpp"

namespace srifty {
namespace {

using Json = nlohmann::ordered_json;
using trainyard::DataError;

constexpr const char* profile_format = "trainyard.profile/1";
constexpr const char* links_format = "trainyard.links/1";

/// Reads keys of an object, and says of a wrong one where it stands and what it is to be.
class Keys {
 public:
  Keys(const Json& object, std::string path, std::string place = "")
      : object_(object), path_(std::move(path)), place_(std::move(place)) {
    if (!object.is_object()) throw DataError(path_ + ": " + place_ + " is no table");
  }

  double positive(const char* key, const char* meaning) const {
    const double value = number(key, meaning);
    if (value <= 0.0) fail(key, meaning);
    return value;
  }
  double number(const char* key, const char* meaning) const {
    const Json& value = at(key, meaning);
    if (!value.is_number() || !(value.get<double>() >= 0.0) || !std::isfinite(value.get<double>()))
      fail(key, meaning);
    return value.get<double>();
  }
  std::string text(const char* key, const char* meaning) const {
    const Json& value = at(key, meaning);
    if (!value.is_string() || value.get<std::string>().empty()) fail(key, meaning);
    return value.get<std::string>();
  }
  bool boolean(const char* key, const char* meaning) const {
    const Json& value = at(key, meaning);
    if (!value.is_boolean()) fail(key, meaning);
    return value.get<bool>();
  }
  const Json& list(const char* key, const char* meaning) const {
    const Json& value = at(key, meaning);
    if (!value.is_array() || value.empty()) fail(key, meaning);
    return value;
  }
  Keys element(const char* key, std::size_t i) const {
    return {object_.at(key)[i], path_, place_ + key + "[" + std::to_string(i) + "]."};
  }
  [[noreturn]] void fail(const char* key, const char* meaning) const {
    throw DataError(path_ + ": " + place_ + key +
                    (object_.contains(key) ? " is " + object_.at(key).dump() : " is not there") +
                    ": expected " + meaning);
  }

 private:
  const Json& at(const char* key, const char* meaning) const {
    if (!object_.contains(key)) fail(key, meaning);
    return object_.at(key);
  }

  const Json& object_;
  std::string path_, place_;
};

Json parsed(const std::string& text, const std::string& path, const char* format) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) throw DataError(path + ": is no JSON object");
  const std::string found = json.contains("format") ? json.at("format").dump() : "not there";
  if (found != '"' + std::string(format) + '"')
    throw DataError(path + ": format is " + found + ": expected \"" + format + '"');
  return json;
}

/// A profile or curve without date and source is not taken: nobody could say what it is worth.
void read_origin(const Keys& keys, std::string& as_of, std::string& source) {
  as_of = keys.text("as_of", "the date of the measurement, as 2026-11-27");
  if (!days_between(as_of, as_of)) keys.fail("as_of", "the date of the measurement, as 2026-11-27");
  source = keys.text("source", "where it was measured, and how");
}

}  // namespace

double quantile_of(const std::vector<double>& sorted, double quantile) {
  const double place = std::clamp(quantile, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(place);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (place - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

double Profile::gradient_bytes() const {
  return std::accumulate(gradients.begin(), gradients.end(), 0.0,
                         [](double sum, const Gradient& each) { return sum + each.bytes; });
}

double Links::seconds(int ranks, double bytes, double quantile) const {
  if (ranks < 2) return 0.0;
  const double beyond = std::clamp((quantile - 0.5) / 0.4, 0.0, 1.0);
  const auto exact = worlds.find(ranks);
  if (exact != worlds.end()) {
    const double typical = exact->second.typical.seconds(bytes);
    return typical + beyond * (exact->second.slow.seconds(bytes) - typical);
  }
  const auto& [world, measured] = *worlds.rbegin();
  const double typical = ring_seconds(ranks, bytes, fit_link(world, measured.typical.points()));
  return typical + beyond * (ring_seconds(ranks, bytes, fit_link(world, measured.slow.points())) - typical);
}

Profile read_profile(const std::string& text, const std::string& path) {
  const Json json = parsed(text, path, profile_format);
  const Keys keys(json, path);
  Profile made;
  made.path = path;
  made.device = keys.text("device", "the name of the device, as the catalogue's accelerators are called");
  read_origin(keys, made.as_of, made.source);
  made.model = keys.text("model", "the digest of the model");
  made.estimated = keys.boolean("estimated", "whether it was calculated and not measured");
  made.rest = keys.number("rest_s", "seconds");
  made.input = keys.number("input_s_per_sample", "seconds a sample");
  made.input_overlaps = keys.boolean("input_overlaps", "whether data is read beside the step");
  made.weight_bytes = keys.positive("weight_bytes", "bytes, more than 0");
  made.sample_bytes = keys.number("activation_bytes_per_sample", "bytes, 0 where it is not known");
  const Json& batches = keys.list("batches", "a list of measured batch sizes");
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const Keys each = keys.element("batches", i);
    made.batches.push_back({static_cast<std::int64_t>(each.positive("samples", "samples, more than 0")),
                            each.positive("forward_s", "seconds, more than 0"),
                            each.positive("backward_s", "seconds, more than 0"),
                            each.number("spread", "a share of the median")});
  }
  std::sort(made.batches.begin(), made.batches.end(),
            [](const BatchProfile& a, const BatchProfile& b) { return a.samples < b.samples; });
  const Json& gradients = keys.list("gradients", "a list of gradients");
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Keys each = keys.element("gradients", i);
    made.gradients.push_back({each.positive("bytes", "bytes, more than 0"),
                              each.number("ready", "a share of the backward pass, 0 to 1")});
    if (made.gradients.back().ready > 1.0) each.fail("ready", "a share of the backward pass, 0 to 1");
  }
  for (const Json& each : keys.list("step_quantiles", "steps over their median, at least one")) {
    if (!each.is_number() || each.get<double>() <= 0.0)
      keys.fail("step_quantiles", "numbers above 0: steps over their median");
    made.steps.push_back(each.get<double>());
  }
  std::sort(made.steps.begin(), made.steps.end());
  return made;
}

std::string profile_text(const Profile& profile) {
  Json json = {{"format", profile_format},
               {"device", profile.device},
               {"as_of", profile.as_of},
               {"source", profile.source},
               {"estimated", profile.estimated},
               {"model", profile.model},
               {"rest_s", profile.rest},
               {"input_s_per_sample", profile.input},
               {"input_overlaps", profile.input_overlaps},
               {"weight_bytes", profile.weight_bytes},
               {"activation_bytes_per_sample", profile.sample_bytes},
               {"batches", Json::array()},
               {"step_quantiles", profile.steps},
               {"gradients", Json::array()}};
  for (const BatchProfile& each : profile.batches)
    json["batches"].push_back({{"samples", each.samples},
                               {"forward_s", each.forward},
                               {"backward_s", each.backward},
                               {"spread", each.spread}});
  for (const Gradient& each : profile.gradients)
    json["gradients"].push_back({{"bytes", each.bytes}, {"ready", each.ready}});
  return json.dump(1) + "\n";
}

Links read_links(const std::string& text, const std::string& path) {
  const Json json = parsed(text, path, links_format);
  const Keys keys(json, path);
  Links made;
  made.path = path;
  made.name = keys.text("name", "the name that the catalogue's column link has");
  read_origin(keys, made.as_of, made.source);
  const Json& worlds = keys.list("worlds", "a list, one entry a number of ranks");
  for (std::size_t i = 0; i < worlds.size(); ++i) {
    const Keys world = keys.element("worlds", i);
    const double ranks = world.positive("ranks", "a number of ranks, 2 or more");
    if (ranks < 2.0 || ranks != std::floor(ranks)) world.fail("ranks", "a number of ranks, 2 or more");
    std::vector<Exchange> typical, slow;
    const Json& points = world.list("points", "a list of measured sums");
    for (std::size_t k = 0; k < points.size(); ++k) {
      const Keys point = world.element("points", k);
      const double bytes = point.positive("bytes", "bytes, more than 0");
      typical.push_back({bytes, point.positive("p50_s", "seconds, more than 0")});
      slow.push_back({bytes, point.positive("p90_s", "seconds, more than 0")});
    }
    made.worlds.emplace(static_cast<int>(ranks), Links::Measured{Curve(typical), Curve(slow)});
  }
  return made;
}

}  // namespace srifty
