#include "applied.hpp"

#include <algorithm>
#include <optional>

#include "lib/words.hpp"

namespace ops {
namespace {

using namespace trainyard;

/// A whole number among the model's options: an option, or an element of one that is a list.
struct Place {
  std::size_t option;
  std::optional<std::size_t> element;
};

std::vector<Place> places_of(const Table& model, std::int64_t value) {
  const auto is = [&](const Value& each) {
    const auto* number = each.get_if<std::int64_t>();
    return number != nullptr && *number == value;
  };
  std::vector<Place> places;
  for (std::size_t i = 0; i < model.entries().size(); ++i) {
    const Value& option = model.entries()[i].value;
    if (is(option)) places.push_back({i, std::nullopt});
    const auto* list = option.get_if<Array>();
    for (std::size_t k = 0; list != nullptr && k < list->size(); ++k)
      if (is((*list)[k])) places.push_back({i, k});
  }
  return places;
}

/// Whole numbers and lists of them, as the run file has them; empty for anything else.
std::string text_of(const Value& option) {
  if (const auto* number = option.get_if<std::int64_t>()) return std::to_string(*number);
  const auto* list = option.get_if<Array>();
  if (list == nullptr) return "";
  std::vector<std::string> elements;
  for (const Value& each : *list) elements.push_back(text_of(each));
  return "[" + lib::join(elements) + "]";
}

/// Number of a width among those of the same channels.
std::size_t rank_of(const std::vector<Width>& widths, const Width& width) {
  std::size_t rank = 0;
  for (const Width& each : widths) {
    if (each.makers == width.makers) break;
    rank += each.channels == width.channels ? 1 : 0;
  }
  return rank;
}

}  // namespace

Applied apply(const Table& config, const std::vector<Width>& widths, const std::vector<Advice>& advice,
              Advice::Kind kind) {
  Applied applied;
  const Value* found = config.find("model");
  if (found == nullptr) return applied;
  const Table& before = found->as<Table>();
  Table after = before;
  for (const Advice& each : advice) {
    if (each.kind != kind) continue;
    const std::vector<Place> places = places_of(before, each.width.channels);
    const auto alike =
        static_cast<std::size_t>(std::count_if(widths.begin(), widths.end(), [&](const Width& width) {
          return width.channels == each.width.channels;
        }));
    if (places.size() != alike) {
      applied.without.push_back(each.layers + ": the model's options have " +
                                std::to_string(each.width.channels) + " " + std::to_string(places.size()) +
                                " times, its widths " + std::to_string(alike) + " times: change it by hand");
      continue;
    }
    const Place& place = places[rank_of(widths, each.width)];
    Value& option = after.entries()[place.option].value;
    (place.element ? option.as<Array>()[*place.element] : option) = Value(each.channels);
  }
  for (std::size_t i = 0; i < before.entries().size(); ++i) {
    const auto& [key, old] = before.entries()[i];
    const Value& now = after.entries()[i].value;
    if (text_of(old) == text_of(now)) continue;
    applied.changes.push_back("model." + key + " = " + text_of(now) + ", which was " + text_of(old));
    applied.text += key + " = " + text_of(now) + "\n";
  }
  if (!applied.text.empty())
    applied.text =
        "# Written by trainyard ops: lay it over the run file whose network was timed.\n[model]\n" +
        applied.text;
  return applied;
}

}  // namespace ops
