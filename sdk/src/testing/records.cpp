#include <trainyard/testing/records.hpp>

#include <algorithm>
#include <memory>
#include <vector>

namespace trainyard::testing {

std::optional<Finding> FakeTrial::show(Rule& rule, const std::map<std::string, at::Tensor>& tensors,
                                       Mode mode) {
  const std::vector<Watch> watches = rule.watches();
  auto record = std::make_shared<StepRecord>();
  record->mode = mode;
  record->mode_step = mode_steps_[mode]++;
  record->step = step_++;
  for (const auto& [name, tensor] : tensors) {
    const auto watched = [&](bool values) {
      return std::ranges::any_of(watches, [&](const Watch& each) {
        return (each.values || !values) && trial_.belongs(name, each.tensors);
      });
    };
    if (!watched(false)) continue;
    TensorRecord entry{
        .name = name, .shape = tensor.sizes().vec(), .statistics = statistics(tensor), .value = {}};
    if (watched(true)) entry.value = tensor.detach().cpu().clone();
    record->tensors.push_back(std::move(entry));
  }
  const std::vector<Mode> modes = rule.modes();
  if (record->tensors.empty() || std::ranges::find(modes, mode) == modes.end()) return std::nullopt;
  trial_.keep(rule.window());
  trial_.add(record);
  return rule.evaluate(trial_, *record);
}

}  // namespace trainyard::testing
