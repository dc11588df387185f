// Plugins that throw where they are told. `before` names a call that comes before the training, `during` one
// of a step: the test takes the names from the manifest, so that a call added here is tested.
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>

#include <trainyard/manifest.hpp>

struct Options {
  std::string before = "nothing";
  std::string during = "nothing";
  std::string what = "error";

  void at(const std::string& call) const {
    if (call != before && call != during) return;
    if (what == "data") throw trainyard::DataError("thrown in " + call);
    if (what == "foreign") throw 42;
    throw std::runtime_error("thrown in " + call);
  }
};

inline void describe_thrower(trainyard::Manifest<Options>& m, std::vector<std::string> before,
                             std::vector<std::string> during) {
  m.name("thrower").version("1.0.0").summary("Throws where it is told.");
  before.insert(before.begin(), "nothing");
  during.insert(during.begin(), "nothing");
  m.option("before", &Options::before, "call ahead of the training").one_of(std::move(before));
  m.option("during", &Options::during, "call of a step").one_of(std::move(during));
  m.option("what", &Options::what, "what is thrown").one_of({"error", "data", "foreign"});
}
