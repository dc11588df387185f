#include "pool_file.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

#include "numbers_file.hpp"

namespace screen {
namespace {

using Json = nlohmann::json;
using trainyard::DataError;

constexpr int version = 1;

/// Throws ConfigError where the detectors are not those that the file was written with.
void check_given(const Json& text, const std::vector<Given>& given, const std::string& path) {
  std::vector<std::string> has;
  has.reserve(given.size());
  for (const Given& each : given) has.push_back(each.options);
  const auto expected = text.value("given", std::vector<std::string>());
  if (has == expected) return;
  const auto list = [](const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& each : texts) all += (all.empty() ? "" : ", ") + each;
    return '[' + all + ']';
  };
  throw trainyard::ConfigError(path + ": the pool was fitted with detectors = " + list(expected) +
                               ", and given are " + list(has) + ": give the same");
}

SavedPool pool_of(const Json& text, Archive& archive, std::vector<Given> given) {
  SavedPool saved;
  PoolOptions options;
  options.detectors = text.at("detectors").get<std::vector<std::string>>();
  saved.pool = Pool(options, std::move(given));
  saved.columns = text.at("columns").get<std::vector<std::string>>();
  saved.contamination = text.at("contamination").get<double>();
  saved.combination = static_cast<Combination>(text.at("combination").get<std::uint8_t>());
  saved.pool.keep(archive);
  return saved;
}

}  // namespace

void save_pool(const std::string& path, SavedPool& saved) {
  Archive archive;
  saved.pool.keep(archive);
  Json text = {{"version", version},
               {"columns", saved.columns},
               {"contamination", saved.contamination},
               {"combination", static_cast<int>(saved.combination)},
               {"detectors", Json::array()}};
  for (const Pool::Member& member : saved.pool.members())
    text[member.given ? "given" : "detectors"].push_back(member.given ? member.options : member.spec.text());
  write_numbers(path, std::move(text), archive.numbers());
}

SavedPool load_pool(const std::string& path, std::vector<Given> given) {
  try {
    NumbersFile file = read_numbers(path);
    if (file.text.empty())
      throw DataError(path + ": it is no pool: expected a file that trainyard screen wrote with --save");
    const Json text = Json::parse(file.text);
    if (const int found = text.at("version").get<int>(); found != version)
      throw DataError(path + ": it is a pool of version " + std::to_string(found) +
                      ", and this program reads version " + std::to_string(version) + ": fit the pool again");
    if (!file.is_whole(text))
      throw DataError(
          path + ": its numbers are not those that were written: the file is damaged; fit the pool again");
    check_given(text, given, path);
    Archive archive(std::move(file.numbers), path);
    return pool_of(text, archive, std::move(given));
  } catch (const Json::exception& error) {
    throw DataError(path + ": it is no pool that this program can read (" + error.what() +
                    "): fit the pool again");
  }
}

}  // namespace screen
