// Rules for graphs of networks, beside those of the table: biases, and what comes behind a cut; and all products of one input at once, of
// which the rules of two make pairs alone in an iteration.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "rewrite.hpp"
#include "tensor_rules.hpp"
#include "terms.hpp"

namespace tensat {

std::span<const TensorRule> network_rules();

/// Returns the rules of the table and these, without those that cut between samples.
std::vector<Rule> all_rules(EGraph& graph, const Shapes& shapes);

/// Returns those alone that carry what is merged through what comes behind: few, so that all choices among what they make can be looked through.
std::vector<Rule> merging_rules(EGraph& graph, const Shapes& shapes);

/// Makes products that share an input, and differ in their weights, parts of one product, by the rule of two again and again: the last
/// two, the one before with these, and so on. At most `most` of a group. Returns how many groups there are.
std::size_t merge_groups(Terms& terms, std::size_t most = 32);

/// Takes nodes that cut between samples from what can be chosen, as no number of samples is known. Needs a graph that was rebuilt.
std::size_t ban_cuts_of_batches(Terms& terms);

/// Returns what tells these rules from those of another version.
std::string rules_hash();

}  // namespace tensat
