#include "core/runfile/print.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "lib/escapes.hpp"
#include "lib/printed.hpp"

namespace trainyard::config {
namespace {

/// Prints text with "${" escaped, which would be read as the start of a reference.
std::string escaped_text(const Value& value) {
  std::string text = toml_text(value);
  for (std::size_t at = text.find("${"); at != std::string::npos; at = text.find("${", at + 3))
    text.insert(at, 1, '$');
  return text;
}

bool table_list(const Value& value) {
  const auto* array = value.get_if<Array>();
  return array != nullptr && !array->empty() &&
         std::all_of(array->begin(), array->end(), [](const Value& e) { return e.get_if<Table>(); });
}

class TomlWriter {
 public:
  explicit TomlWriter(bool origins) : origins_(origins) {}

  /// Prints the keys of a table, then its tables, each under its header.
  void table(const Table& table, const std::string& path) {
    for (const auto& [key, value] : table.entries())
      if (!value.get_if<Table>() && !table_list(value)) line(key, value);
    for (const auto& [key, value] : table.entries()) {
      const std::string here = path.empty() ? lib::toml_key(key) : path + "." + lib::toml_key(key);
      if (const auto* inner = value.get_if<Table>()) {
        header("[" + here + "]");
        this->table(*inner, here);
      } else if (table_list(value)) {
        for (const Value& element : value.as<Array>()) {
          header("[[" + here + "]]");
          this->table(element.as<Table>(), here);
        }
      }
    }
  }

  std::string text;

 private:
  void header(const std::string& name) { text += (text.empty() ? "" : "\n") + name + "\n"; }

  void line(const std::string& key, const Value& value) {
    text += lib::toml_key(key) + " = " + escaped_text(value);
    if (origins_)
      text += value.origin.line > 0 ? "  # " + *value.origin.file + ":" + std::to_string(value.origin.line)
                                    : "  # default";
    text += "\n";
  }

  bool origins_;
};

void flatten(const Value& value, const std::string& path,
             std::vector<std::pair<std::string, std::string>>& out) {
  const auto below = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  if (const auto* table = value.get_if<Table>()) {
    for (const auto& [key, inner] : table->entries()) flatten(inner, below(lib::toml_key(key)), out);
  } else if (table_list(value)) {
    const Array& array = value.as<Array>();
    for (std::size_t i = 0; i < array.size(); ++i) flatten(array[i], below(std::to_string(i)), out);
  } else {
    out.emplace_back(path, toml_text(value));
  }
}

}  // namespace

std::string toml_text(const Value& value) {
  if (const auto* v = value.get_if<bool>()) return *v ? "true" : "false";
  if (const auto* v = value.get_if<std::int64_t>()) return std::to_string(*v);
  if (const auto* v = value.get_if<double>()) return std::isnan(*v) ? "nan" : lib::float_text(*v);
  if (const auto* v = value.get_if<std::string>()) return lib::toml_string(*v);
  std::string out;
  if (const auto* array = value.get_if<Array>()) {
    for (const Value& element : *array) out += (out.empty() ? "" : ", ") + toml_text(element);
    return "[" + out + "]";
  }
  for (const auto& [key, inner] : value.as<Table>().entries())
    out += (out.empty() ? "" : ", ") + lib::toml_key(key) + " = " + toml_text(inner);
  return out.empty() ? "{}" : "{ " + out + " }";
}

std::string toml_file(const Table& root, bool origins) {
  TomlWriter writer(origins);
  writer.table(root, "");
  return writer.text;
}

std::vector<Difference> diff(const Table& a, const Table& b) {
  std::vector<std::pair<std::string, std::string>> left, right;
  flatten(Value(a), "", left);
  flatten(Value(b), "", right);
  const std::map<std::string, std::string> of_left(left.begin(), left.end()),
      of_right(right.begin(), right.end());
  const auto value_in = [](const auto& values, const std::string& key) {
    const auto at = values.find(key);
    return at == values.end() ? std::string() : at->second;
  };
  std::vector<Difference> result;
  for (const auto& [key, value] : left)
    if (const std::string other = value_in(of_right, key); other != value)
      result.push_back({key, value, other});
  for (const auto& [key, value] : right)
    if (!of_left.contains(key)) result.push_back({key, "", value});
  return result;
}

}  // namespace trainyard::config
