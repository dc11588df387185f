// trainyard plugins new: makes a folder for a user's plugin, which builds, is tested and trains as it is.
#include <iostream>

#include "core/cli/engine_library.hpp"
#include "core/cli/scaffold.hpp"
#include "core/cli/verbs/verb.hpp"
#include "core/plugins/kinds.hpp"

namespace trainyard::cli {
namespace {

/// Prints the next commands to type in the current folder.
void tell(const Scaffold& what, const std::string& folder) {
  const std::string command = own_command();
  const bool on_path = command == "trainyard";
  std::string run = first_command(folder);
  for (std::size_t at = 0; !on_path && (at = run.find("trainyard ", at)) != std::string::npos;
       at += command.size())
    run.replace(at, std::string_view("trainyard").size(), command);
  std::cout << "made " << folder << ", of kind " << what.kind
            << ": it builds and trains as it stands. Next:\n"
            << "  cd " << folder << '\n'
            << "  cmake -B build" << (on_path ? "" : " -DCMAKE_PREFIX_PATH=" + home())
            << " && cmake --build build && ctest --test-dir build\n"
            << "  " << run << '\n';
}

int make(Scaffold& what) {
  const auto shipped = plugins::Registry::scan({home() + "/lib/trainyard/plugins"});
  tell(what, scaffold(what, shipped));
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_plugins_new(Arguments plugins, CommandLine& line) {
  const auto what = std::make_shared<Scaffold>();
  std::vector<std::string> kinds;
  for (const plugins::KindRow& row : plugins::kinds) kinds.emplace_back(row.kind.name);
  Arguments verb = plugins.verb("new", "make a folder for a plugin of your own");
  verb.add("kind", what->kind, "what it is: schedule, loss, hook").required().one_of(kinds);
  verb.add("name", what->name, "its name: lower-case letters, digits and _").required();
  verb.add("--dir", what->directory, "where the folder NAME is made; here without it");
  verb.add("--licence,--license", what->licence, "of its files (apache-2.0)").one_of(licences);
  verb.add("--author", what->author, "who has the copyright");
  when_chosen(verb, line, what, make);
}

}  // namespace trainyard::cli
