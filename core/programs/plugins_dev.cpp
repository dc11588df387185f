// trainyard plugins dev: watches a plugin's folder beside a run that is going. Saved changes are built,
// checked and swapped in; if the build or a check fails, the run is left alone.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string_view>

#include <trainyard/error.hpp>

#include "core/cli/client.hpp"
#include "core/cli/engine_library.hpp"
#include "core/cli/run_state.hpp"
#include "core/plugins/kinds.hpp"
#include "core/plugins/registry.hpp"
#include "core/programs/captured.hpp"
#include "core/programs/folder_watch.hpp"
#include "core/programs/programs.hpp"
#include "lib/printed.hpp"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using control::Status;
using plugins::PluginFile;

constexpr std::chrono::milliseconds look_at_run{1000};
constexpr std::size_t most_error_lines = 12;
/// The tests that take only seconds, as someone waits; the run itself watches a new plugin for some steps.
constexpr const char* quick_groups[] = {"static", "life.opens", "run.trains", "state"};

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; !from.empty() && (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

bool is_error(const std::string& line) {
  for (const char* word : {"error:", "undefined reference", "undefined symbol", "CMake Error", "Error at"})
    if (line.find(word) != std::string::npos) return true;
  return false;
}

/// Returns the first errors in the output of a compiler, linker or the seal, each with the lines that show
/// it, and paths below `folder` shortened.
std::string short_errors(const std::string& text, const std::string& folder) {
  std::istringstream lines(text);
  std::string result;
  std::size_t taken = 0, left = 0;  // lines shown, and lines left of the current error
  for (std::string line; std::getline(lines, line) && taken < most_error_lines;) {
    if (is_error(line)) left = 3;
    if (left == 0) continue;
    --left;
    ++taken;
    result += "  " + line + '\n';
  }
  if (result.empty()) result = text.substr(text.size() - std::min<std::size_t>(text.size(), 1000));
  replace_all(result, folder + "/", "");
  return result;
}

struct DevOptions {
  std::string folder;                    ///< has a CMakeLists.txt; builds go to folder/build
  std::string run;                       ///< directory of the run, or its name below runs/
  std::vector<std::string> assignments;  ///< the plugin's options if the run has another in its slot
  double timeout = 60.0;                 ///< seconds to wait for a swap
  bool once = false;                     ///< builds, checks and swaps once, then ends
};

class Developer {
 public:
  Developer(const DevOptions& options, std::ostream& out)
      : options_(options),
        out_(out),
        folder_(fs::weakly_canonical(options.folder).string()),
        build_(folder_ + "/build"),
        run_(find_run(options.run)) {
    if (!fs::exists(folder_ + "/CMakeLists.txt"))
      throw ConfigError(folder_ +
                        " has no CMakeLists.txt: name a folder as `trainyard plugins new` makes it");
    if (!holds_run(run_)) look_at(run_, {});  // throws what the folder holds
  }

  int work() {
    FolderWatch watch(folder_, {"build", "runs"});  // before the first build, so that saves meanwhile count
    bool in_place = turn();
    if (options_.once) return static_cast<int>(in_place ? ExitCode::done : ExitCode::plugin);
    say("watching " + folder_ + "; Ctrl-C ends that, and leaves the run alone");
    for (;;) {
      if (watch.changed(look_at_run)) turn();
      const RunState state = life_of(run_, std::chrono::milliseconds(500));
      if (going(state.life)) continue;
      say("the run is over: " + how_it_ended(state));
      return static_cast<int>(ExitCode::done);
    }
  }

 private:
  void say(const std::string& text) { out_ << text << std::endl; }

  /// Builds, checks and swaps; returns whether the run now has the plugin that was built.
  bool turn() {
    try {
      if (!built()) return false;
      return std::ranges::all_of(sealed(), [&](const PluginFile& each) {
        return each.place > 0 || (passes(each) && swapped(plugins::read(each.path)));
      });
    } catch (const control::Refused& refusal) {
      say("the run refuses, and goes on as it was: " + printable(refusal.what()));
    } catch (const control::NoAnswer& silence) {
      say(std::string("the run does not answer: ") + silence.what());
    } catch (const Error& error) {
      say(error.what());
    }
    return false;
  }

  bool built() {
    const auto begun = std::chrono::steady_clock::now();
    if (!fs::exists(build_ + "/CMakeCache.txt") &&
        !succeeds({"cmake", "-S", folder_, "-B", build_, "-DCMAKE_PREFIX_PATH=" + home()}))
      return false;
    if (!succeeds({"cmake", "--build", build_})) return false;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    say("built in " + lib::printed("%.3f", took.count()) + " s");
    return true;
  }

  bool succeeds(const std::vector<std::string>& words) {
    const Captured done = captured(words);
    if (done.code != 0)
      say("it does not build, and the run goes on as it was:\n" + short_errors(done.text, folder_));
    return done.code == 0;
  }

  /// Returns the plugins of the folder, which all satisfy the rules of loading.
  std::vector<PluginFile> sealed() const {
    const auto registry = plugins::Registry::scan({build_});
    for (const plugins::Refusal& refusal : registry.refusals()) throw PluginError(refusal.message);
    if (registry.files().empty())
      throw PluginError(build_ + " has no plugin: the CMakeLists.txt is to call trainyard_add_plugin()");
    return registry.files();
  }

  bool passes(const PluginFile& file) {
    std::vector<std::string> words = {home() + "/bin/trainyard", "plugins", "check", file.path};
    for (const char* group : quick_groups) words.insert(words.end(), {"--only", group});
    const Captured done = captured(words);
    if (done.code != 0)
      say("it does not pass `trainyard plugins check`, and the run goes on as it was:\n" + done.text);
    return done.code == 0;
  }

  /// Swaps those of a file's plugins that the run has; returns whether it has any, and takes all of them.
  bool swapped(const std::vector<PluginFile>& file) {
    control::Client client(run_);
    const auto patience = std::chrono::milliseconds(static_cast<std::int64_t>(options_.timeout * 1e3));
    const auto status = client.ask({.verb = control::Verb::status}, patience).get<Status>();
    bool any = false, all = true;
    for (const PluginFile& plugin : file)
      for (const Status::Slot& slot : status.slots)
        if (takes(slot, plugin, file.size() > 1)) {
          any = true;
          all = swapped(client, slot, plugin, patience) && all;
        }
    for (const PluginFile& plugin : file)
      if (!any)
        say("the run has no " + plugin.manifest.kind + " \"" + plugin.manifest.name + "\" in [" +
            section_of(plugin) + "]: put it into its run file, and begin the run again");
    return any && all;
  }

  bool swapped(control::Client& client, const Status::Slot& slot, const PluginFile& plugin,
               std::chrono::milliseconds patience) try {
    if (slot.digest == plugin.digest) {
      say(slot.slot + " of the run is this very " + plugin.manifest.name);
      return true;
    }
    control::Request request{.verb = control::Verb::swap, .slot = slot.slot, .type = plugin.manifest.name};
    request.assignments = options_.assignments;
    const control::Json result = client.ask(request, patience);
    const control::Json message = result.is_object() ? result.value("message", control::Json()) : result;
    say(printable(message.is_string() ? message.get<std::string>() : result.dump()));
    return true;
  } catch (const control::Refused& refusal) {
    say("the run refuses it, and " + slot.slot + " goes on as it was: " + printable(refusal.what()));
    return false;
  }

  static std::string section_of(const PluginFile& plugin) {
    const plugins::KindRow* const row = plugins::find_kind(plugin.manifest.kind);
    return std::string(row != nullptr ? row->section : plugin.manifest.kind);
  }

  /// Returns whether a slot of the run has the plugin. One that is alone in its file takes the only slot of its
  /// kind, too, whatever is in it: of a pack, several may be of the kind.
  static bool takes(const Status::Slot& slot, const PluginFile& plugin, bool of_pack) {
    const std::string section = section_of(plugin);
    const bool named = slot.type == plugin.manifest.name;
    return slot.slot == section ? named || !of_pack : named && slot.slot.starts_with(section + ".");
  }

  const DevOptions& options_;
  std::ostream& out_;
  const std::string folder_, build_, run_;
};

int develop(DevOptions& given) {
  return Developer(given, std::cout).work();
}

}  // namespace

void add_plugins_dev(Arguments plugins, CommandLine& line) {
  const auto given = std::make_shared<DevOptions>();
  Arguments verb = plugins.verb("dev", "rebuild a plugin whenever it is saved, and swap it into a live run");
  verb.add("folder", given->folder, "of the plugin, as `plugins new` makes it").required().existing_folder();
  verb.add("--run", given->run, "directory of the run, or its name below runs/").required();
  verb.add("--set", given->assignments, "option of the plugin where the run has another: KEY=VALUE")
      .one_at_a_time();
  verb.add("--timeout", given->timeout, "seconds to wait for a swap (60)").within(0.001, 1e6);
  verb.flag("--once", given->once, "build, check and swap once, then end");
  when_chosen(verb, line, given, develop);
}

}  // namespace trainyard::cli
