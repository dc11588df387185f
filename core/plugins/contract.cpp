#include "core/plugins/contract.hpp"

#include <algorithm>
#include <string_view>

#include <trainyard/error.hpp>
#include <trainyard/version.hpp>

namespace trainyard::plugins {
namespace {

constexpr std::size_t max_told = 4;  // plugins of another release differ in nearly all

struct Header {
  std::string_view name, digest;
};

bool consists_of(std::string_view text, std::string_view characters) {
  return !text.empty() && text.find_first_not_of(characters) == std::string_view::npos;
}

Header split(std::string_view item) {
  const std::size_t equals = std::min(item.find('='), item.size());
  return {item.substr(0, equals), item.substr(std::min(equals + 1, item.size()))};
}

bool is_sound(const Header& header) {
  return consists_of(header.name, "abcdefghijklmnopqrstuvwxyz0123456789_/.") &&
         header.digest.size() == contract_digits && consists_of(header.digest, "0123456789abcdef");
}

[[noreturn]] void refuse(std::string_view item) {
  std::string shown(item.substr(0, 40));
  std::replace_if(
      shown.begin(), shown.end(), [](unsigned char c) { return c < 0x20; }, '?');
  throw PluginError("its seal lists the headers of its SDK wrongly: found `" + shown +
                    "`, expected NAME=DIGEST in the order of the names; build the plugin again");
}

}  // namespace

std::string to_text(const Contract& contract) {
  std::string text;
  for (const auto& [name, digest] : contract) text += (text.empty() ? "" : " ") + name + "=" + digest;
  return text;
}

std::string mismatch(const BuildFacts& plugin, const Contract& host) {
  const auto stated = plugin.find("headers");
  if (stated == plugin.end())
    throw PluginError("its seal lists no headers of its SDK; build the plugin again");
  std::string text;
  std::size_t differing = 0;
  std::string_view rest = stated->second, last;
  auto ours = host.begin();
  for (bool more = true; more;) {
    const std::string_view item = rest.substr(0, rest.find(' '));
    more = item.size() < rest.size();
    if (more) rest.remove_prefix(item.size() + 1);
    const auto [name, digest] = split(item);
    if (name <= last) refuse(item);  // names are sorted, each once
    last = name;
    while (ours != host.end() && ours->first < name) ++ours;
    const bool known = ours != host.end() && ours->first == name;
    if (known && ours->second == digest) continue;
    if (!is_sound({name, digest})) refuse(item);  // only here, as this runs at every start
    if (++differing > max_told) continue;
    text += (text.empty() ? "header trainyard/" : ", header trainyard/") + std::string(name) + " is " +
            std::string(digest) + ", the host has " + (known ? ours->second : "none of that name");
  }
  if (text.empty()) return text;
  if (differing > max_told) text += ", and " + std::to_string(differing - max_told) + " more";
  return text + ": both say SDK " TRAINYARD_SDK_VERSION ", yet their headers differ; rebuild it against " +
         "this host's installation (find_package(Trainyard), then cmake --build)";
}

}  // namespace trainyard::plugins
