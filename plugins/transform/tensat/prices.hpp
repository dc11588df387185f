// What operators cost on this machine, measured for their exact shapes. A price is what one more such operator adds to a pass: of three
// side by side over one alone, so that what a pass costs once is in none.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "terms.hpp"
#include "timing.hpp"

namespace tensat {

/// Prices by what was measured: "matmul -32_64 64_64t".
using PriceTable = std::map<std::string, double>;

class Prices {
 public:
  /// `graph` has the nodes that are symbols. The table is read, and added to. Once `stop` says so, nothing
  /// new is measured: what rewrites made and nobody knows the price of is too dear to be chosen.
  Prices(const trainyard::Graph& graph, const Terms& terms, Way way, PriceTable& table,
         std::function<bool()> stop = {});

  /// Returns the cost of a node in seconds.
  double of(NodeId node);
  /// Returns the costs of all nodes.
  std::vector<double> all();
  std::size_t measured() const { return measured_; }

 private:
  struct Small;

  double measure(const Small& small, const std::string& key);
  double joined();
  double cut();
  double overhead();
  std::optional<at::ScalarType> dtype_of(const std::string& op) const;
  std::string node_text(const std::string& op) const;
  bool is(NodeId node, const char* op) const;
  std::optional<NodeId> oldest(ClassId of, const char* op = nullptr) const;
  std::int32_t child(Small& small, ClassId of, bool as_second_factor) const;
  std::int32_t constant(Small& small, ClassId of) const;
  bool wants_gradient(ClassId of) const;

  const trainyard::Graph& graph_;
  const Terms& terms_;
  Way way_;
  PriceTable& table_;
  std::function<bool()> stop_;
  std::vector<signed char> wants_;  ///< by class: whether it follows from a parameter
  std::size_t measured_ = 0;
  bool is_new_ = false;  ///< the node at hand is none of the graph's
  std::optional<double> overhead_;
  mutable std::vector<std::vector<NodeId>> by_class_;
};

}  // namespace tensat
