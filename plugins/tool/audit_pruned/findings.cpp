#include "findings.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <initializer_list>

#include <trainyard/error.hpp>

#include "lib/escapes.hpp"
#include "lib/new_file.hpp"
#include "lib/printed.hpp"

namespace audit {
namespace {

using trainyard::lib::shortest;

/// A table that becomes a file.
class Csv {
 public:
  explicit Csv(std::initializer_list<const char*> columns) {
    for (const char* column : columns) add(column);
    end();
  }
  Csv& add(const std::string& text) {
    text_ += (begins_ ? "" : ",") + trainyard::lib::csv_field(text, ",\"\r\n");
    begins_ = false;
    return *this;
  }
  Csv& add(double number) { return add(std::isfinite(number) ? shortest(number) : std::string()); }
  Csv& add(std::int64_t number) { return add(std::to_string(number)); }
  void end() {
    text_ += '\n';
    begins_ = true;
  }

  void write(const std::string& path) const {
    const auto fail = [&](int reason) {
      throw trainyard::DataError(path + " cannot be written: " + std::strerror(reason));
    };
    trainyard::lib::NewFile made(path);
    std::ofstream file(made.temporary(), std::ios::binary);
    if (!file) fail(errno);
    file << text_;
    file.close();
    if (!file) fail(errno);
    if (const auto failure = made.put_in_place()) fail(failure->reason);
  }

 private:
  std::string text_;
  bool begins_ = true;
};

Csv errors_table(const Findings& findings) {
  Csv table{"split", "distribution", "network", "ratio",  "samples",          "error",
            "match", "distance",     "largest", "logits", "calibration_error"};
  for (const Finding& finding : findings.all)
    for (std::size_t i = 0; i < finding.outcomes.size(); ++i) {
      const Outcome& said = finding.outcomes[i];
      table.add(finding.split).add(finding.distribution.name).add(findings.networks[i].name);
      table.add(findings.networks[i].ratio).add(said.samples()).add(said.error()).add(said.match());
      table.add(said.distance()).add(said.largest()).add(said.logit_distance()).add(said.calibration_error());
      table.end();
    }
  return table;
}

Csv potential_table(const Findings& findings) {
  Csv table{"split", "distribution", "parents_error", "potential"};
  for (const Finding& finding : findings.all) {
    table.add(finding.split).add(finding.distribution.name).add(finding.outcomes.front().error());
    table.add(findings.potential_of(finding)).end();
  }
  return table;
}

Csv excess_table(const Findings& findings, const std::string& split) {
  Csv table{"split", "distribution", "network", "ratio", "excess_error"};
  const Finding* const clean = findings.find(split, "clean");
  for (const Finding& finding : findings.all) {
    if (clean == nullptr || finding.split != split || finding.distribution.clean()) continue;
    const std::vector<AtRatio> points = findings.excess(finding, *clean);
    for (std::size_t i = 0; i < points.size(); ++i) {
      table.add(split).add(finding.distribution.name).add(findings.networks[i + 1].name);
      table.add(points[i].ratio).add(points[i].value).end();
    }
  }
  return table;
}

/// Of clean data, and the share of a class's samples that a network loses against the parent.
Csv classes_table(const Findings& findings) {
  Csv table{"split", "network", "ratio", "class", "samples", "error", "damage"};
  for (const Finding& finding : findings.all) {
    if (!finding.distribution.clean()) continue;
    for (std::size_t i = 0; i < finding.outcomes.size(); ++i)
      for (std::size_t label = 0; label < finding.outcomes[i].classes(); ++label) {
        const double error = finding.outcomes[i].error_of_class(label);
        table.add(finding.split).add(findings.networks[i].name).add(findings.networks[i].ratio);
        table.add(static_cast<std::int64_t>(label)).add(finding.outcomes[i].of_class(label)).add(error);
        table.add(error - finding.outcomes.front().error_of_class(label)).end();
      }
  }
  return table;
}

Csv networks_table(const Findings& findings) {
  Csv table{"network", "is", "parameters", "ratio"};
  for (std::size_t i = 0; i < findings.networks.size(); ++i) {
    const Judged& each = findings.networks[i];
    table.add(each.name).add(std::string(i == 0 ? "parent" : i <= findings.pruned ? "pruned" : "yardstick"));
    table.add(each.parameters).add(each.ratio).end();
  }
  return table;
}

Csv shared_table(const Findings& findings) {
  Csv table{"pixels_of", "network", "samples", "pixels", "confidence"};
  for (const Shared& each : findings.shared) {
    table.add(findings.networks[each.chooser].name).add(findings.networks[each.judge].name);
    table.add(each.samples).add(each.kept).add(each.confidence).end();
  }
  return table;
}

}  // namespace

const Finding* Findings::find(const std::string& split, const std::string& distribution) const {
  for (const Finding& each : all)
    if (each.split == split && each.distribution.name == distribution) return &each;
  return nullptr;
}

std::vector<AtRatio> Findings::errors(const Finding& finding) const {
  std::vector<AtRatio> points;
  for (std::size_t i = 1; i <= pruned; ++i)
    points.push_back({networks[i].ratio, finding.outcomes[i].error()});
  return points;
}

std::vector<AtRatio> Findings::excess(const Finding& finding, const Finding& clean) const {
  std::vector<AtRatio> points;
  const double of_parent = finding.outcomes.front().error() - clean.outcomes.front().error();
  for (std::size_t i = 1; i <= pruned; ++i)
    points.push_back(
        {networks[i].ratio, finding.outcomes[i].error() - clean.outcomes[i].error() - of_parent});
  return points;
}

std::size_t Findings::at_ratio(double ratio) const {
  for (std::size_t i = 1; i <= pruned; ++i)
    if (networks[i].ratio == ratio) return i;
  return 0;
}

void Findings::write(const std::string& folder, const std::string& report) const {
  errors_table(*this).write(folder + "/errors.csv");
  potential_table(*this).write(folder + "/potential.csv");
  excess_table(*this, report).write(folder + "/excess.csv");
  classes_table(*this).write(folder + "/classes.csv");
  networks_table(*this).write(folder + "/networks.csv");
  if (!shared.empty()) shared_table(*this).write(folder + "/backselect.csv");
}

}  // namespace audit
