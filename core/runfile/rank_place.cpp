#include "core/runfile/rank_place.hpp"

#include <charconv>
#include <cstdlib>

#include <trainyard/error.hpp>

#include "core/runfile/at_path.hpp"

namespace trainyard::config {
namespace {

std::string text(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int number(const char* name, int fallback, int least, int most) {
  const std::string given = text(name);
  if (given.empty()) return fallback;
  int value = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value);
  if (error == std::errc() && end == given.data() + given.size() && value >= least && value <= most)
    return value;
  throw Error(ExitCode::distributed, std::string(name) + " is \"" + given +
                                         "\" in the environment; expected " + std::to_string(least) + " to " +
                                         std::to_string(most) +
                                         ", as torchrun or trainyard train --ranks set it");
}

}  // namespace

RankPlace RankPlace::of_process() {
  constexpr int most = 1 << 20;
  RankPlace place;
  place.size = number("WORLD_SIZE", 1, 1, most);
  if (place.size == 1) return place;
  if (text("RANK").empty() || text("MASTER_PORT").empty())
    throw Error(ExitCode::distributed, "WORLD_SIZE is " + std::to_string(place.size) +
                                           " in the environment, and RANK or MASTER_PORT is not there: start "
                                           "the ranks by torchrun or trainyard train --ranks");
  place.rank = number("RANK", 0, 0, place.size - 1);
  place.local_size = number("LOCAL_WORLD_SIZE", place.size, 1, place.size);
  place.local_rank = number("LOCAL_RANK", place.rank % place.local_size, 0, place.local_size - 1);
  if (const std::string address = text("MASTER_ADDR"); !address.empty()) place.address = address;
  place.port = static_cast<std::uint16_t>(number("MASTER_PORT", 0, 1, 65535));
  place.serves = place.rank == 0 && text("TORCHELASTIC_USE_AGENT_STORE") != "True";
  if (const int socket = number("TRAINYARD_STORE_SOCKET", -1, 0, most); place.serves && socket >= 0)
    place.listening = socket;
  place.replacement = number("TRAINYARD_REPLACEMENT", 0, 0, most);
  if (const int pipe = number("TRAINYARD_LAUNCHER_PIPE", -1, 0, most); pipe >= 0) place.launcher = pipe;
  place.start = text("TORCHELASTIC_RUN_ID") + "/" + text("TORCHELASTIC_RESTART_COUNT");
  return place;
}

std::int64_t ranks_of(const Table& file, std::int64_t otherwise) {
  const auto* ranks = at_path<std::int64_t>(file, "distributed.ranks");
  return ranks == nullptr ? otherwise : *ranks;
}

std::vector<std::int64_t> shares_of(const Table& file) {
  const auto* given = at_path<Array>(file, "distributed.shares");
  std::vector<std::int64_t> shares;
  for (const Value& each : given == nullptr ? Array() : *given) {
    const auto* share = each.get_if<std::int64_t>();
    if (share == nullptr || *share < 1) return {};
    shares.push_back(*share);
  }
  return shares;
}

}  // namespace trainyard::config
