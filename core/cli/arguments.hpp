// Declares what verbs take on the command line, without including the parser, whose one header costs each
// unit that includes it five seconds.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace trainyard::cli {

/// A word or an option of a verb, and the constraints on it.
class Argument {
 public:
  explicit Argument(CLI::Option& option) : option_(&option) {}

  Argument& required();
  Argument& existing_file();
  Argument& run_file();  ///< an existing file, or a run: its directory, or its name below runs/
  Argument& run(bool is_there = false);  ///< resolves such a run; other words stay, or are refused
  Argument& existing_folder();
  Argument& within(double least, double most);
  Argument& one_of(const std::vector<std::string>& words);
  Argument& one_at_a_time();  ///< each further value needs the option's name again
  Argument& exactly(int count, const std::string& help);
  Argument& offers(const std::string& what);  ///< kind of completion: "setting"; no check

 private:
  CLI::Option* option_;
};

/// Consumes a word; a returned text is reported as an error.
using Take = std::function<std::optional<std::string>(const std::string&)>;

/// A verb, or the command itself. Copies are handles of the same verb. Variables that it fills outlive it.
class Arguments {
 public:
  explicit Arguments(CLI::App& app) : app_(&app) {}

  /// Adds a verb below this one, which then requires one of its verbs.
  Arguments verb(const std::string& name, const std::string& help);
  /// Adds a verb below this one, which also works without it.
  Arguments further_verb(const std::string& name, const std::string& help);
  /// Adds an argument: "run" is positional, "--set" is an option.
  Argument add(const std::string& name, std::string& value, const std::string& help);
  Argument add(const std::string& name, double& value, const std::string& help);
  Argument add(const std::string& name, int& value, const std::string& help);
  Argument add(const std::string& name, std::vector<std::string>& values, const std::string& help);
  Argument add(const std::string& name, const Take& take, const std::string& help);
  void flag(const std::string& name, bool& value, const std::string& help);
  void flag(const std::string& name, const std::function<void()>& given, const std::string& help);
  void footer(const std::string& text);
  void fall_through();  ///< options of this verb may also follow its sub-verbs
  void allow_others();
  std::vector<std::string> others() const;
  /// Calls `action` if this verb is the one that was given, once the whole line is parsed.
  void when_chosen(const std::function<void()>& action);

 private:
  CLI::App* app_;
};

/// Completions for a place of a command line.
struct Offer {
  std::vector<std::string> words;   ///< verbs, options, words of a set
  std::string what;                 ///< or the kind that an argument declares: "run", "folder", "setting"
  std::vector<std::string> before;  ///< positional words of the verb before the place
};

/// The command: collects its verbs, then parses.
class Command {
 public:
  Command(const std::string& name, const std::string& about, const std::string& version);
  ~Command();

  Arguments arguments() { return Arguments(*app_); }
  /// Parses. Returns an exit code if nothing is left to do: help was asked for, or an error was reported.
  std::optional<int> parse(int argc, const char* const* argv, std::ostream& out, std::ostream& errors);
  bool has_verb(const std::string& name) const;
  /// Completes the last of `words`, or the value in "--name=be"; they exclude the command's name.
  Offer offer(const std::vector<std::string>& words) const;

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace trainyard::cli
