// list_plugins FOLDER...: `trainyard plugins list` without the rest of the host.
#include <iostream>
#include <string>
#include <vector>

#include "core/cli/plugins_verbs.hpp"

int main(int count, char** arguments) {
  const auto registry =
      trainyard::plugins::Registry::scan(std::vector<std::string>(arguments + 1, arguments + count));
  return static_cast<int>(trainyard::cli::plugins_list(registry, trainyard::cli::Format::text, std::cout));
}
