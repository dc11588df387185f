#include "core/engine/train/weights.hpp"

#include <ATen/core/grad_mode.h>
#include <fnmatch.h>

#include <algorithm>
#include <map>

#include <trainyard/error.hpp>

namespace trainyard::train {
namespace {

bool chosen(const std::string& name, const std::vector<std::string>& patterns) {
  return patterns.empty() || std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
           return fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
         });
}

/// Float and double convert to each other; bytes that a network grows (mixins/grows.hpp) are of any length.
bool takes(const at::Tensor& to, const at::Tensor& from) {
  const auto wide = [](at::ScalarType type) { return type == at::kFloat || type == at::kDouble; };
  const at::ScalarType own = to.scalar_type(), given = from.scalar_type();
  const bool grown = own == at::kByte && to.dim() == 1 && from.dim() == 1;
  return (grown || to.sizes() == from.sizes()) && (own == given || (wide(own) && wide(given)));
}

}  // namespace

void copy_weights(const std::vector<NamedTensor>& to, const std::vector<NamedTensor>& from,
                  const std::string& source, const std::vector<std::string>& patterns) {
  std::map<std::string_view, const at::Tensor*> given;
  for (const NamedTensor& each : from) given.emplace(each.name, &each.tensor);
  std::vector<std::pair<at::Tensor, const at::Tensor*>> pairs;
  for (const NamedTensor& each : to) {
    if (!chosen(each.name, patterns)) continue;
    const auto found = given.find(each.name);
    if (found == given.end())
      throw ConfigError(source + " lacks \"" + each.name + "\", which the model needs");
    const at::Tensor& tensor = *found->second;
    if (!takes(each.tensor, tensor))
      throw ConfigError(source + ": \"" + each.name + "\" is " + tensor.toString() + " of " +
                        c10::str(tensor.sizes()) + ", the model's is " + each.tensor.toString() + " of " +
                        c10::str(each.tensor.sizes()));
    pairs.emplace_back(each.tensor, &tensor);
    given.erase(found);
  }
  if (pairs.empty()) throw ConfigError("no tensor of the model fits the patterns of run.load_match");
  if (patterns.empty() && !given.empty())
    throw ConfigError(source + " holds \"" + std::string(given.begin()->first) +
                      "\", which the model does not have");
  const at::NoGradGuard no_grad;
  for (auto& [target, tensor] : pairs)
    (target.sizes() == tensor->sizes() ? target : target.resize_(tensor->sizes())).copy_(*tensor);
}

}  // namespace trainyard::train
