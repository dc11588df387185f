#include <trainyard/trial.hpp>

#include <algorithm>
#include <regex>

#include <trainyard/error.hpp>

namespace trainyard {

Statistics TensorRecord::numbers() const {
  if (statistics) return *statistics;
  if (!value.defined())
    throw PluginError("tensor \"" + name + "\" was recorded with neither statistics nor values");
  return trainyard::statistics(value);
}

const TensorRecord* StepRecord::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors.begin(), tensors.end(), name,
                       [](const TensorRecord& each, std::string_view wanted) { return each.name < wanted; });
  return found == tensors.end() || found->name != name ? nullptr : &*found;
}

const std::vector<Collection>& default_collections() {
  static const std::vector<Collection> all = {
      {"all", {".*"}},
      {"weights", {"^(?!gradient|optimizer).*weight"}},
      {"biases", {"^(?!gradient|optimizer).*bias"}},
      {"gradients", {"^gradient/"}},
      {"losses", {"[Ll]oss_(?!input).*output"}},
      {"inputs", {"^input_"}},
      {"outputs", {"_output_[0-9]+$"}},
      {"metrics", {"^metric/"}},
      {"optimizer_variables", {"^optimizer/"}},
  };
  return all;
}

Trial::Trial(std::vector<Collection> collections) : collections_(std::move(collections)) {}

void Trial::add(std::shared_ptr<const StepRecord> record) {
  std::int64_t of_mode = 0;
  for (auto each = records_.rbegin(); each != records_.rend(); ++each) {
    if ((*each)->mode != record->mode) continue;
    if (of_mode++ == 0 && (*each)->mode_step >= record->mode_step)
      throw PluginError("trial: step " + std::to_string(record->mode_step) + " of " +
                        std::string(mode_names[static_cast<std::size_t>(record->mode)]) +
                        " was recorded after step " + std::to_string((*each)->mode_step));
    if (of_mode < window_) continue;
    records_.erase(std::next(each).base());
    break;
  }
  records_.push_back(std::move(record));
}

void Trial::go_back(std::int64_t step) {
  std::erase_if(records_, [&](const auto& each) { return each->step >= step; });
}

const StepRecord* Trial::find(Mode mode, std::int64_t mode_step) const {
  const auto found = std::find_if(records_.rbegin(), records_.rend(), [&](const auto& each) {
    return each->mode == mode && each->mode_step == mode_step;
  });
  return found == records_.rend() ? nullptr : found->get();
}

const StepRecord* Trial::previous(const StepRecord& record, std::string_view tensor) const {
  const auto found = std::find_if(records_.rbegin(), records_.rend(), [&](const auto& each) {
    return each->mode == record.mode && each->mode_step < record.mode_step && each->find(tensor) != nullptr;
  });
  return found == records_.rend() ? nullptr : found->get();
}

bool Trial::belongs(std::string_view tensor, const std::string& what) const {
  auto& answers = known_[what];
  if (const auto known = answers.find(tensor); known != answers.end()) return known->second;
  const auto collection = std::find_if(collections_.begin(), collections_.end(),
                                       [&](const Collection& each) { return each.name == what; });
  const std::vector<std::string> include =
      collection == collections_.end() ? std::vector{what} : collection->include;
  const std::string name(tensor);
  const bool answer = std::any_of(include.begin(), include.end(), [&](const std::string& expression) {
    try {
      return std::regex_search(name, std::regex(expression));
    } catch (const std::regex_error& error) {
      throw PluginError("\"" + expression + "\" is no expression: " + error.what());
    }
  });
  answers.emplace(name, answer);
  return answer;
}

std::vector<const TensorRecord*> Trial::tensors(const StepRecord& record, const std::string& what) const {
  std::vector<const TensorRecord*> found;
  for (const TensorRecord& tensor : record.tensors)
    if (belongs(tensor.name, what)) found.push_back(&tensor);
  return found;
}

}  // namespace trainyard
