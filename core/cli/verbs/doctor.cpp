// trainyard doctor: checks the installation.
#include <cstdio>
#include <filesystem>
#include <trainyard/version.hpp>

#include "core/cli/engine_library.hpp"
#include "core/cli/verbs/verbs.hpp"

namespace trainyard::cli {
namespace {

int doctor(RunFileOptions& options) {
  const auto registry = plugins::Registry::scan(plugin_folders(options.plugin_folders));
  std::printf("Trainyard      %s, SDK %s, %s\n", TRAINYARD_VERSION, TRAINYARD_SDK_VERSION, home().c_str());
  std::printf("plugins        %zu usable, %zu refused\n", registry.files().size(),
              registry.refusals().size());
  for (const plugins::Refusal& refusal : registry.refusals()) std::printf("  %s\n", refusal.message.c_str());
  const auto space = std::filesystem::space(std::filesystem::current_path());
  std::printf("disk           %.1f GiB free here\n", static_cast<double>(space.available) / (1 << 30));
  return engine().doctor();
}

}  // namespace

void add_doctor(Arguments verb, CommandLine& line) {
  when_chosen(verb, line, std::make_shared<RunFileOptions>(), doctor);
}

}  // namespace trainyard::cli
