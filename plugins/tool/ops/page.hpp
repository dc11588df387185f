// The report as a page: a picture of each sweep, what was found, and the network.
#pragma once

#include <string>
#include <vector>

#include "advice.hpp"
#include "findings.hpp"
#include "sweep.hpp"

namespace ops {

/// What the page says beside the pictures.
struct PageInput {
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<Finding> findings;
  std::vector<Advice> advice;
  NetworkTimes network;
  double jump_threshold = 0.1;
};

/// Returns an HTML document that needs no other file.
std::string page_of(const Database& database, const std::vector<Sweep>& sweeps, const PageInput& input);

/// Says in words what was detected in a curve: "width 16; jumps at 17, 33; 17 costs more than 18".
std::string pattern_text(const Curve& curve, double jump_threshold);

}  // namespace ops
