#include "core/runfile/changes.hpp"

#include <algorithm>

#include "core/runfile/schema.hpp"

namespace trainyard::config {
namespace {

/// Returns whether a key lies within a path: "model.layers" lies within "model", "modelling" does not.
bool within(const std::string& key, const std::string& prefix) {
  return key.starts_with(prefix) && (key.size() == prefix.size() || key[prefix.size()] == '.');
}

std::string line(const Difference& each) {
  return each.key + " " + (each.a.empty() ? "(none)" : each.a) + " -> " +
         (each.b.empty() ? "(none)" : each.b);
}

const char* mend(const std::string& key) {
  if (within(key, "model"))
    return "changes of shape need run.resume = \"never\", or a new run that loads the weights alone: "
           "run.resume = "
           "\"<this run's folder>\", run.load = \"weights\" and another run.output_dir";
  if (within(key, "optimizer"))
    return "swap it within the run: [[swap]] at = \"...\", slot = \"optimizer\", or trainyard ctl swap";
  return "keep it, or begin anew with run.resume = \"never\" and another run.output_dir";
}

/// Returns the value at a dotted path with indices, or null.
Value* find(Value& root, std::string_view path) {
  Value* value = &root;
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    const std::string part(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
    if (Table* table = value->get_if<Table>())
      value = table->find(part);
    else if (Array* array = value->get_if<Array>())
      value = std::stoul(part) < array->size() ? &(*array)[std::stoul(part)] : nullptr;
    else
      value = nullptr;
    if (value == nullptr) return nullptr;
  }
  return value;
}

/// Compares types: true for two tables, or lists of equally many tables; other lists change as a whole.
bool alike(const Value& a, const Value& b) {
  if (a.get_if<Table>() && b.get_if<Table>()) return true;
  const Array *of_a = a.get_if<Array>(), *of_b = b.get_if<Array>();
  return of_a != nullptr && of_b != nullptr && of_a->size() == of_b->size() && !of_a->empty() &&
         of_a->front().get_if<Table>() != nullptr;
}

}  // namespace

ChangeClass classify(const std::string& key) {
  const Section* in = &section("");
  for (const Section& candidate : schema())
    if (within(key, candidate.path) && candidate.path.size() > in->path.size()) in = &candidate;
  const std::string rest =
      key.size() > in->path.size() && !in->path.empty() ? key.substr(in->path.size() + 1) : key;
  if (rest == "type") return in->type_change;
  const auto found = std::ranges::find(in->keys, rest, &Key::name);
  return found == in->keys.end() ? in->change : found->change.value_or(in->change);
}

std::vector<std::string> check_changes(const std::vector<Difference>& differences, std::int64_t since,
                                       Findings& findings) {
  std::vector<std::string> lines;
  for (const Difference& each : differences) {
    if (each.a + each.b == "[]") continue;  // another version of the host has no such list
    const ChangeClass change = classify(each.key);
    if (change == ChangeClass::refused)
      findings.error("E502", {},
                     "resume: " + line(each) + " since step " + std::to_string(since) +
                         " does not fit the state that was saved",
                     mend(each.key));
    if (change == ChangeClass::journalled) lines.push_back(line(each));
  }
  return lines;
}

Table with_changes(Table root, const std::vector<Difference>& differences, const Table& changed) {
  Value target(std::move(root));
  Value source(changed);
  for (const Difference& each : differences) {
    // Walks from the root to where the two trees part: a table comes or goes as a whole.
    for (std::size_t end = 0; end != std::string::npos;) {
      end = each.key.find('.', end + 1);
      const std::string path = each.key.substr(0, end);
      Value* const into = find(target, path);
      const Value* const value = find(source, path);
      if (into != nullptr && value != nullptr) {
        if (end != std::string::npos && alike(*into, *value)) continue;
        *into = *value;
        break;
      }
      const std::size_t dot = path.rfind('.');
      Value* const parent = find(target, dot == std::string::npos ? "" : path.substr(0, dot));
      if (Table* table = parent->get_if<Table>()) {
        if (value == nullptr)
          table->erase(path.substr(dot + 1));
        else
          table->set(path.substr(dot + 1), *value);
      }
      break;
    }
  }
  return std::move(target.as<Table>());
}

}  // namespace trainyard::config
