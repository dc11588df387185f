#include "json_lines.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

#include "lib/words.hpp"

namespace text {
namespace {

using nlohmann::json;

/// Names the keys that a line has, to mend a misspelt one by.
std::string keys_of(const json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items())
    if (value.is_string()) keys.push_back(key);
  return keys.empty() ? "it has no texts" : "it has texts at: " + trainyard::lib::join(keys);
}

std::string text_of(std::string_view line, const std::string& key, std::int64_t number) {
  const auto fail = [&](const std::string& what) {
    throw trainyard::DataError("line " + std::to_string(number) + " " + what);
  };
  const json object = json::parse(line, nullptr, false);
  if (object.is_discarded()) fail("is not JSON, or no UTF-8: leave `field` out if the file is a plain text");
  if (!object.is_object()) fail("is no object {...}, but a JSON " + std::string(object.type_name()));
  const auto found = object.find(key);
  if (found == object.end()) fail("has no \"" + key + "\"; " + keys_of(object));
  if (!found->is_string())
    fail("has at \"" + key + "\" no text, but a JSON " + std::string(found->type_name()) + "; " +
         keys_of(object));
  return found->get<std::string>();
}

}  // namespace

std::string joined_texts(std::string_view lines, const std::string& key, const std::string& between) {
  std::string texts;
  std::int64_t number = 0, taken = 0;
  for (std::size_t at = 0, end = 0; at < lines.size(); at = end + 1) {
    end = std::min(lines.find('\n', at), lines.size());
    const std::string_view line = lines.substr(at, end - at);
    ++number;
    if (trainyard::lib::trimmed(line, " \t\r").empty()) continue;
    texts += (taken++ == 0 ? "" : between) + text_of(line, key, number);
  }
  if (texts.empty()) throw trainyard::DataError("no line has a text");
  return texts;
}

}  // namespace text
