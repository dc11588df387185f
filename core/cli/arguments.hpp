// What verbs ask of the command line, and nothing of the parser behind it: its one header costs a unit that reads
// it five seconds.
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

/// A word or an option of a verb, and what it must be.
class Argument {
 public:
  explicit Argument(CLI::Option& option) : option_(&option) {}

  Argument& required();
  Argument& existing_file();
  Argument& run_file();  ///< an existing one, or a run: its directory, or its name below runs/
  Argument& run();       ///< such a run is given by its directory; any other word stays as it is
  Argument& existing_folder();
  Argument& within(double least, double most);
  Argument& one_of(const std::vector<std::string>& words);
  Argument& one_at_a_time();  ///< further ones need the option's name again
  Argument& exactly(int count, const std::string& help);
  Argument& offers(const std::string& what);  ///< of what a shell completes it: "setting"; no check

 private:
  CLI::Option* option_;
};

/// Takes a word; what it gives is told as what is wrong with it.
using Take = std::function<std::optional<std::string>(const std::string&)>;

/// A verb, or the command itself. A handle: copies are the same verb. What is filled outlives it.
class Arguments {
 public:
  explicit Arguments(CLI::App& app) : app_(&app) {}

  /// A verb of this one, which needs one of them from then on.
  Arguments verb(const std::string& name, const std::string& help);
  /// A verb of this one, which does something of its own without it.
  Arguments further_verb(const std::string& name, const std::string& help);
  /// "run" is known by its place, "--set" by its name.
  Argument add(const std::string& name, std::string& value, const std::string& help);
  Argument add(const std::string& name, double& value, const std::string& help);
  Argument add(const std::string& name, int& value, const std::string& help);
  Argument add(const std::string& name, std::vector<std::string>& values, const std::string& help);
  Argument add(const std::string& name, const Take& take, const std::string& help);
  void flag(const std::string& name, bool& value, const std::string& help);
  void flag(const std::string& name, const std::function<void()>& given, const std::string& help);
  void footer(const std::string& text);
  void fall_through();  ///< options of a verb may stand after the verbs of it
  void allow_others();
  std::vector<std::string> others() const;
  /// Called where the verb is the one that was given, once all of it was read.
  void when_chosen(const std::function<void()>& action);

 private:
  CLI::App* app_;
};

/// What may stand at a place of a command line.
struct Offer {
  std::vector<std::string> words;   ///< verbs, options, words of a set
  std::string what;                 ///< or what an argument says of itself: "run", "folder", "setting"
  std::vector<std::string> before;  ///< the words of the verb that stand before it and are no options
};

/// The command: takes its verbs, then parses.
class Command {
 public:
  Command(const std::string& name, const std::string& about, const std::string& version);
  ~Command();

  Arguments arguments() { return Arguments(*app_); }
  /// The exit code where what was typed ends here: help was asked for, or it is wrong, which was told.
  std::optional<int> parse(int argc, const char* const* argv, std::ostream& out, std::ostream& errors);
  /// Of the last of the words, which is begun; "--name=be": of the option. The command's name is none of them.
  Offer offer(const std::vector<std::string>& words) const;

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace trainyard::cli
