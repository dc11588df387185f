#include <trainyard/optimizer.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

#include <trainyard/pattern.hpp>

namespace trainyard {
namespace {

bool takes(const GroupRule& rule, const std::string& name) {
  return std::any_of(rule.match.begin(), rule.match.end(),
                     [&](const std::string& pattern) { return fits(pattern, name); });
}

std::string label(const GroupRule& rule, std::size_t index) {
  std::string text = "optimizer.groups[" + std::to_string(index) + "] (match = [";
  for (std::size_t i = 0; i < rule.match.size(); ++i) text += (i > 0 ? ", \"" : "\"") + rule.match[i] + "\"";
  return text + "])";
}

/// Says why no parameter follows the rule.
std::string unused(const std::vector<NamedTensor>& parameters, const GroupRule& rule, std::size_t index) {
  const bool shadowed = std::any_of(parameters.begin(), parameters.end(), [&](const NamedTensor& parameter) {
    return takes(rule, parameter.name);
  });
  if (shadowed)
    return label(rule, index) +
           " has no effect: earlier rules take all parameters it matches; move it before them";
  std::string names;
  constexpr std::size_t shown = 8;
  for (std::size_t i = 0; i < std::min(shown, parameters.size()); ++i)
    names += (i > 0 ? ", " : "") + parameters[i].name;
  if (parameters.size() > shown) names += ", ... (" + std::to_string(parameters.size()) + " in all)";
  return label(rule, index) + " matches no parameter of the model; its parameters are " + names;
}

}  // namespace

void GroupRule::describe(Fields<GroupRule>& m) {
  m.option("match", &GroupRule::match,
           "patterns of parameter names, * and ? allowed; the first rule that matches wins")
      .required();
  m.option("lr", &GroupRule::lr, "learning rate of the group").min(0.0);
  m.option("lr_factor", &GroupRule::lr_factor, "factor on the learning rate of the optimizer").min(0.0);
  m.option("weight_decay", &GroupRule::weight_decay, "weight decay of the group").min(0.0);
}

void OptimizerCommon::describe(Fields<OptimizerCommon>& m) {
  m.option("lr", &OptimizerCommon::lr, "base learning rate; the schedule's factor multiplies it")
      .required()
      .above(0.0);
  m.option("weight_decay", &OptimizerCommon::weight_decay, "weight decay").min(0.0);
  m.option("decay", &OptimizerCommon::decay,
           "what weight_decay applies to: all parameters, or matrices (two or more dimensions) only")
      .one_of({"all", "matrices"});
  m.option("groups", &OptimizerCommon::groups, "other values for parameters by name");
}

std::vector<ParamGroup> make_groups(const std::vector<NamedTensor>& parameters,
                                    const OptimizerCommon& common) {
  for (std::size_t i = 0; i < common.groups.size(); ++i)
    if (common.groups[i].lr && common.groups[i].lr_factor)
      throw ConfigError(label(common.groups[i], i) + " has both lr and lr_factor; keep one of them");

  std::vector<bool> used(common.groups.size());
  std::vector<ParamGroup> groups;
  for (const NamedTensor& parameter : parameters) {
    double lr = common.lr;
    double decay = common.decay == "all" || parameter.tensor.dim() >= 2 ? common.weight_decay : 0.0;
    const auto rule =
        std::find_if(common.groups.begin(), common.groups.end(),
                     [&](const GroupRule& candidate) { return takes(candidate, parameter.name); });
    if (rule != common.groups.end()) {
      used[static_cast<std::size_t>(rule - common.groups.begin())] = true;
      lr = rule->lr.value_or(common.lr * rule->lr_factor.value_or(1.0));
      decay = rule->weight_decay.value_or(decay);
    }
    auto group = std::find_if(groups.begin(), groups.end(), [&](const ParamGroup& candidate) {
      return candidate.base_lr == lr && candidate.weight_decay == decay;
    });
    if (group == groups.end())
      group = groups.insert(group, ParamGroup{.base_lr = lr, .lr = lr, .weight_decay = decay});
    group->names.push_back(parameter.name);
    group->params.push_back(parameter.tensor);
  }
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i]) throw ConfigError(unused(parameters, common.groups[i], i));
  if (groups.empty()) groups.push_back({.base_lr = common.lr, .lr = common.lr});  // it has the rate alone
  return groups;
}

namespace {

/// Takes the gradients away from parameters, and gives them back at its end.
class PutAside {
 public:
  explicit PutAside(const ParamGroup& group) {
    for (const at::Tensor& param : group.params) {
      gradients_.emplace_back(param, param.grad());
      param.mutable_grad().reset();
    }
  }
  PutAside(PutAside&& other) = default;
  ~PutAside() {
    for (const auto& [param, gradient] : gradients_) param.mutable_grad() = gradient;
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients_;
};

}  // namespace

void Optimizer::step_group(std::size_t group) {
  const ParamGroup& own = groups_.at(group);
  std::vector<PutAside> others;
  for (const ParamGroup& each : groups_)
    if (&each != &own) others.emplace_back(each);
  step();
}

}  // namespace trainyard
