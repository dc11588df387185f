#include "firing.hpp"

#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

namespace trial {

using Json = nlohmann::json;

std::string Firing::text() const {
  const std::string when =
      mode_step < 0 ? "while it waited" : "at step " + std::to_string(mode_step) + " of " + mode;
  return rule + " " + when + ": " + finding.message;
}

Firing firing_of(const Verdict& verdict) {
  const RuleCommon& common = verdict.rule.rule->common;
  return {.rule = verdict.rule.id,
          .mode = std::string(mode_names[static_cast<std::size_t>(verdict.mode)]),
          .mode_step = verdict.mode_step,
          .finding = verdict.finding,
          .action = common.action,
          .lr_scale = common.lr_scale,
          .swap = common.swap.value_or(RuleSwap()),
          .notify = common.notify};
}

std::string text_of(const std::vector<Firing>& firings) {
  if (firings.empty()) return {};
  Json all = Json::array();
  for (const Firing& each : firings)
    all.push_back({{"rule", each.rule},
                   {"mode", each.mode},
                   {"mode_step", each.mode_step},
                   {"message", each.finding.message},
                   {"tensors", each.finding.tensors},
                   {"action", each.action},
                   {"lr_scale", each.lr_scale},
                   {"slot", each.swap.slot},
                   {"type", each.swap.type},
                   {"set", each.swap.set}});
  return all.dump();
}

std::vector<Firing> firings_of(const std::string& text) {
  std::vector<Firing> firings;
  if (text.empty()) return firings;
  try {
    for (const Json& each : Json::parse(text)) {
      Firing& firing = firings.emplace_back();
      each.at("rule").get_to(firing.rule);
      each.at("mode").get_to(firing.mode);
      each.at("mode_step").get_to(firing.mode_step);
      each.at("message").get_to(firing.finding.message);
      each.at("tensors").get_to(firing.finding.tensors);
      each.at("action").get_to(firing.action);
      each.at("lr_scale").get_to(firing.lr_scale);
      each.at("slot").get_to(firing.swap.slot);
      each.at("type").get_to(firing.swap.type);
      each.at("set").get_to(firing.swap.set);
    }
  } catch (const Json::exception& error) {
    throw PluginError(std::string("the verdicts in the checkpoint cannot be read: ") + error.what());
  }
  return firings;
}

}  // namespace trial
