// The trainyard command. A thin front: it checks everything that can be checked without LibTorch, passes the
// rest to the engine, and becomes the program of a verb that it does not have itself.
#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "core/cli/program.hpp"
#include "core/cli/verbs/verbs.hpp"
#include "core/plugins/host_verbs.hpp"

namespace trainyard::cli {
namespace {

struct OwnVerb {
  std::string_view name;
  void (*add)(Arguments, CommandLine&);
};
constexpr OwnVerb own_verbs[] = {{"train", add_train}, {"resume", add_resume}, {"eval", add_eval},
                                 {"plan", add_plan},   {"doctor", add_doctor}, {"validate", add_validate},
                                 {"model", add_model}, {"tools", add_tools}};

/// Returns the words behind the first one, as the program of that verb takes them.
std::vector<std::string> words_of_program(const CommandLine& line) {
  std::vector<std::string> words(line.words.begin() + 1, line.words.end());
  if (line.completes) words.insert(words.begin(), "__complete");
  return words;
}

void add_verb(Arguments command, const plugins::HostVerb& verb, CommandLine& line) {
  Arguments added = command.verb(verb.name, verb.help);
  if (!verb.is_program) return std::ranges::find(own_verbs, verb.name, &OwnVerb::name)->add(added, line);
  added.allow_others();  // the program parses them; here the verb is only listed
}

void add_verbs(Command& command, CommandLine& line) {
  const std::string word = line.words.empty() ? "" : line.words.front();
  const bool is_whole = !line.completes || line.words.size() > 1;
  const plugins::HostVerb* const verb = plugins::find_verb(word);
  if (verb != nullptr && verb->is_program && is_whole) become_verb(word, words_of_program(line));
  // The folders of plugins are only read for a word that is no verb of the host's.
  const bool is_unknown = !word.empty() && !word.starts_with('-') && !plugins::is_host_verb(word);
  for (const plugins::HostVerb& each : plugins::host_verbs) {
    add_verb(command.arguments(), each, line);
    if (is_unknown && each.name == std::string_view("tools")) add_tools_of_plugins(command.arguments(), line);
  }
  command.arguments().footer(
      "`trainyard help VERB` says what a verb takes; tools, which are verbs of plugins, are listed by "
      "`trainyard tools`.");
  if (!is_unknown || line.completes || command.has_verb(word) || word.find('/') != std::string::npos) return;
  if (const auto program = program_of(word)) become(*program, words_of_program(line));
}

}  // namespace
}  // namespace trainyard::cli

int main(int argc, char** argv) {
  return trainyard::cli::run_front({argv + 1, argv + argc}, trainyard::cli::add_verbs);
}
