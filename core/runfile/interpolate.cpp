#include "core/runfile/interpolate.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "core/runfile/at_path.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/suggest.hpp"
#include "lib/words.hpp"

namespace trainyard::config {
namespace {

constexpr std::size_t longest = 1 << 16;       // longest text
constexpr std::size_t most_in_all = 16 << 20;  // total length of all texts with references put in
constexpr std::size_t longest_chain = 100;

class Interpolation {
 public:
  Interpolation(const Table& root, const Scope& scope, Findings& findings)
      : scope_(scope), findings_(findings) {
    look_up(root);
  }

  /// Returns a copy with all strings filled; a string that cannot be filled stays unchanged, with a finding.
  Value filled(const Value& value) {
    Value result = value;
    if (const auto* table = value.get_if<Table>())
      for (std::size_t i = 0; i < table->entries().size(); ++i)
        result.as<Table>().entries()[i].value = filled(table->entries()[i].value);
    if (const auto* array = value.get_if<Array>())
      for (std::size_t i = 0; i < array->size(); ++i) result.as<Array>()[i] = filled((*array)[i]);
    const auto* text = value.get_if<std::string>();
    if (text == nullptr || text->find("${") == std::string::npos) return result;
    if (std::optional<Value> full = fill(*text, value.origin)) {
      full->origin = value.origin;
      full->key_origin = value.key_origin;
      return std::move(*full);
    }
    return result;
  }

  /// Returns the value of a name; nothing, with a finding at `at`, where it has none.
  std::optional<Value> named(const std::string& name, const Origin& at) {
    if (const auto known = known_.find(name); known != known_.end()) return known->second;
    const Value* written = find(name);
    if (written == nullptr && name == "run.name") return Value(scope_.run_name);
    if (written == nullptr && name == "run.data") return Value(absolute_path(scope_.data_root, {}));
    if (written == nullptr)
      return fail(at, "${" + name + "} names nothing", suggestion(name, names_, "known"));
    if (written->get_if<Table>() || written->get_if<Array>())
      return fail(
          at, "${" + name + "} is a whole " + written->type_name() + ", and only a single value fits here",
          "define a variable for each value");
    if (std::find(open_.begin(), open_.end(), name) != open_.end())
      return fail(at, "${" + name + "} is defined by itself: " + lib::join(open_, " -> ") + " -> " + name,
                  "give one of them a value");
    if (open_.size() == longest_chain)
      return fail(at,
                  "${" + name + "} is needed by a chain of " + std::to_string(longest_chain) +
                      " variables: " + open_[0] + " -> " + open_[1] + " -> ... -> " + open_.back(),
                  "write the value out in one of them, or define each before those that need it");
    open_.push_back(name);
    Value value = filled(*written);
    open_.pop_back();
    if (name == "run.data")
      if (auto* path = value.get_if<std::string>()) *path = absolute_path(*path, value.origin);
    return known_.emplace(name, std::move(value)).first->second;
  }

 private:
  std::optional<Value> fail(const Origin& at, std::string message, std::string hint) {
    findings_.error("E110", at, std::move(message), std::move(hint));
    return std::nullopt;
  }

  std::optional<Value> fill(const std::string& text, const Origin& at) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
      if (text.compare(i, 3, "$${") == 0) {
        out += "${";
        i += 3;
        continue;
      }
      if (text.compare(i, 2, "${") != 0) {
        out += text[i++];
        continue;
      }
      const std::size_t end = text.find('}', i);
      if (end == std::string::npos)
        return fail(at, "`${` without a closing brace",
                    "write ${vars.NAME}; for the characters themselves, $${");
      std::optional<Value> value = named(text.substr(i + 2, end - i - 2), at);
      if (!value) return std::nullopt;
      const auto* put_in = value->get_if<std::string>();
      if (put_in != nullptr && (grown_ += put_in->size()) > most_in_all)
        return fail(at, "with this the values of references grow beyond 16 MiB",
                    "do the variables multiply each other?");
      if (i == 0 && end + 1 == text.size()) return value;
      out += put_in != nullptr ? *put_in : toml_text(*value);
      if (out.size() > longest)
        return fail(at, "grows beyond 64 KiB", "do the variables multiply each other?");
      i = end + 1;
    }
    return Value(std::move(out));
  }

  const Value* find(const std::string& name) const {
    const auto found = written_.find(name);
    return found == written_.end() ? nullptr : found->second;
  }

  /// Collects the values that references may name, as written.
  void look_up(const Table& root) {
    if (const auto* vars = at_path<Table>(root, "vars"))
      for (const Table::Entry& entry : vars->entries()) {
        names_.push_back("vars." + entry.key);
        written_.emplace(names_.back(), &entry.value);
      }
    for (const char* name : {"run.data", "run.name"}) {
      names_.emplace_back(name);
      if (const Value* value = value_at(root, name)) written_.emplace(name, value);
    }
  }

  const Scope& scope_;
  Findings& findings_;
  std::vector<std::string> names_;
  std::map<std::string, const Value*> written_;
  std::map<std::string, Value> known_;
  std::vector<std::string> open_;  // names that are being filled in
  std::size_t grown_ = 0;          // total bytes that replaced references
};

}  // namespace

void interpolate(Table& root, const Scope& scope, Findings& findings) {
  if (const Value* vars = root.find("vars"); vars != nullptr && !vars->get_if<Table>())
    findings.error("E105", vars->origin, "vars: expected a table, found " + std::string(vars->type_name()),
                   "[vars] holds one value a line: width = 128");
  Interpolation interpolation(root, scope, findings);
  Table result = root;
  if (const auto* vars = at_path<Table>(root, "vars")) {
    for (const Table::Entry& entry : vars->entries()) {  // in file order, which needs the fewest chains
      if (entry.value.get_if<std::string>())
        interpolation.named("vars." + entry.key, entry.value.origin);
      else
        interpolation.filled(entry.value);
    }
  }
  result.erase("vars");
  result = interpolation.filled(Value(std::move(result))).as<Table>();
  if (Value* run = result.find("run"); run != nullptr && run->get_if<Table>())
    if (Value* data = run->as<Table>().find("data"); data != nullptr && data->get_if<std::string>())
      if (std::optional<Value> anchored = interpolation.named("run.data", data->origin))
        *data = std::move(*anchored);
  root = std::move(result);
}

}  // namespace trainyard::config
