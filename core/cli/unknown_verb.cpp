#include "core/cli/unknown_verb.hpp"

#include "core/runfile/suggest.hpp"

namespace trainyard::cli {

std::optional<std::string> unknown_verb(const CLI::App& app) {
  std::string path = app.get_name();
  const CLI::App* last = &app;  // of the verbs that were understood
  while (!last->get_subcommands().empty()) {
    last = last->get_subcommands().front();
    path += " " + last->get_name();
  }
  const std::vector<std::string> words = app.remaining(true);
  if (words.empty() || words.front().starts_with('-')) return std::nullopt;
  std::vector<std::string> verbs;
  for (const CLI::App* verb : last->get_subcommands({})) verbs.push_back(verb->get_name());
  if (verbs.empty()) return std::nullopt;
  return path + ": there is no verb \"" + words.front() + "\"; " +
         config::suggestion(words.front(), verbs, "there are");
}

}  // namespace trainyard::cli
