// trainyard completion: prints the script with which a shell completes command lines.
#include <cstdio>
#include <iterator>

#include "core/cli/completion.hpp"
#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {
namespace {

int completion(std::string& shell) {
  std::fputs(completion_script(shell).c_str(), stdout);
  return 0;
}

}  // namespace

void add_completion(Arguments command, CommandLine& line) {
  Arguments verb = command.verb("completion", "print what a shell completes command lines with");
  const auto shell = std::make_shared<std::string>();
  verb.add("shell", *shell, "bash: source <(trainyard completion bash)")
      .required()
      .one_of({std::begin(shells), std::end(shells)});
  when_chosen(verb, line, shell, completion);
}

}  // namespace trainyard::cli
