// Plugins that throw where they are told. `ahead` names a call that comes before the training, `within` one
// of a step: the test takes the names from the manifest, so that a call added here is tested.
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>

#include <trainyard/manifest.hpp>

struct Options {
  std::string ahead = "nothing";
  std::string within = "nothing";
  std::string what = "error";

  void at(const std::string& call) const {
    if (call != ahead && call != within) return;
    if (what == "data") throw trainyard::DataError("thrown in " + call);
    if (what == "foreign") throw 42;
    throw std::runtime_error("thrown in " + call);
  }
};

inline void describe_thrower(trainyard::Manifest<Options>& m, std::vector<std::string> ahead,
                             std::vector<std::string> within) {
  m.name("thrower").version("1.0.0").summary("Throws where it is told.");
  ahead.insert(ahead.begin(), "nothing");
  within.insert(within.begin(), "nothing");
  m.option("ahead", &Options::ahead, "call ahead of the training").one_of(ahead);
  m.option("within", &Options::within, "call of a step").one_of(within);
  m.option("what", &Options::what, "what is thrown").one_of({"error", "data", "foreign"});
}
