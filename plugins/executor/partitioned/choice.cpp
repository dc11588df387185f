#include "choice.hpp"

#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lib/fnv1a.hpp"
#include "lib/machine.hpp"
#include "lib/printed.hpp"
#include "lib/read_file.hpp"

namespace partitioned {

using namespace trainyard;
namespace {

constexpr std::string_view way_words[ways] = {"clusters", "alone", "threads"};
constexpr std::string_view heading = "trainyard partitioned 1";  // of the file, which later formats change

/// With what else a choice holds for: another machine of the same name has as many cores, and times of its own.
std::string whole_key(const std::string& key) {
  static const std::string machine = lib::processor() + ", LibTorch " TORCH_VERSION;
  return machine + "\n" + key;
}

}  // namespace

Choice fastest(const std::array<double, ways>& microseconds) {
  const auto least = std::ranges::min_element(microseconds);
  return {static_cast<Way>(least - microseconds.begin()), microseconds};
}

std::string described(const Choice& choice, int threads) {
  const std::string names[ways] = {"clusters", "one thread",
                                   "the run's " + std::to_string(threads) + " threads"};
  const std::string& way = names[static_cast<std::size_t>(choice.way)];
  if (std::ranges::none_of(choice.microseconds, [](double each) { return std::isfinite(each); }))
    return way + " (by estimates, as other programs had the cores during the trial)";
  std::string text = way + " (a pass took";
  const char* between = " ";
  for (std::size_t i = 0; i < ways; ++i) {
    if (!std::isfinite(choice.microseconds[i])) continue;
    text += lib::printed("%s%.0f us %s %s", between, choice.microseconds[i], i == 0 ? "in" : "on",
                         names[i].c_str());
    between = ", ";
  }
  return text + (std::isfinite(choice.microseconds[0]) ? ")" : "; clusters were predicted to gain nothing)");
}

std::string text_of(const Choice& choice) {
  std::string text =
      std::string(heading) + "\n" + std::string(way_words[static_cast<std::size_t>(choice.way)]) + "\n";
  for (std::size_t i = 0; i < ways; ++i)
    text += lib::printed("%s %.17g\n", std::string(way_words[i]).c_str(), choice.microseconds[i]);
  return text;
}

std::optional<Choice> read_choice(const std::string& text) {
  std::istringstream lines(text);
  std::string line, word;
  if (!std::getline(lines, line) || line != heading || !std::getline(lines, word)) return std::nullopt;
  const auto way = std::ranges::find(way_words, word);
  if (way == std::end(way_words)) return std::nullopt;
  Choice choice{.way = static_cast<Way>(way - std::begin(way_words))};
  for (std::size_t i = 0; i < ways; ++i) {
    std::string number;
    if (!(lines >> word >> number) || word != way_words[i]) return std::nullopt;
    choice.microseconds[i] = std::strtod(number.c_str(), nullptr);
  }
  return choice;
}

std::string outline_of(const Graph& graph) {
  lib::Fnv1a hash;
  const auto add = [&](auto number) { hash.update(std::to_string(number) + " "); };
  for (const Node& node : graph.nodes) {
    hash.update(node.op + "\n");
    for (const auto* ids : {&node.inputs, &node.outputs})
      for (const ValueId id : *ids) add(id);
  }
  for (const GraphValue& value : graph.values) {
    hash.update("\n");
    add(static_cast<int>(value.dtype));
    for (const std::int64_t size : value.shape) add(size);
  }
  return hash.hex();
}

ChoiceFolder::ChoiceFolder() : folder_(lib::cache_folder("partitioned")) {}

std::string ChoiceFolder::file_of(const std::string& key) const {
  return folder_ + "/" + lib::Fnv1a().update(whole_key(key)).hex() + ".txt";
}

std::optional<Choice> ChoiceFolder::find(const std::string& key) const {
  const auto text = lib::read_file(file_of(key));
  return text ? read_choice(*text) : std::nullopt;
}

std::optional<Choice> ChoiceFolder::keep(const std::string& key, const Choice& choice) const {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  const std::string path = file_of(key), own = path + "." + std::to_string(::getpid());
  std::ofstream file(own, std::ios::binary);
  file << text_of(choice) << whole_key(key) << "\n";
  file.close();
  // A link is made where there is none: of two runs that measure at once the first one's choice counts.
  if (!file || (::link(own.c_str(), path.c_str()) != 0 && !find(key)))
    std::filesystem::rename(own, path, error);
  std::filesystem::remove(own, error);
  return find(key);
}

}  // namespace partitioned
