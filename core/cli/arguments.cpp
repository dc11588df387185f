#include "core/cli/arguments.hpp"

#include <CLI/CLI.hpp>

#include <trainyard/error.hpp>

#include "core/cli/run_state.hpp"
#include "core/runfile/suggest.hpp"

namespace trainyard::cli {
namespace {

/// What to tell of a word that is no verb where one was expected, with the verbs that there are. Nothing where the
/// parse failed of something else. `app`: after the parse.
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

}  // namespace

Argument& Argument::required() {
  option_->required();
  return *this;
}
Argument& Argument::existing_file() {
  option_->check(CLI::ExistingFile);
  return *this;
}
Argument& Argument::run_file() {
  option_->check([](const std::string& word) {
    std::string file = run_file_of(word);
    return CLI::ExistingFile(file);
  });
  return *this;
}
Argument& Argument::run() {
  option_->transform(CLI::Validator(
      [](std::string& word) {
        word = find_run(word);
        return std::string();
      },
      ""));
  return *this;
}
Argument& Argument::existing_folder() {
  option_->check(CLI::ExistingDirectory);
  return *this;
}
Argument& Argument::within(double least, double most) {
  option_->check(CLI::Range(least, most));
  return *this;
}
Argument& Argument::one_of(const std::vector<std::string>& words) {
  option_->check(CLI::IsMember(words));
  return *this;
}
Argument& Argument::one_at_a_time() {
  option_->allow_extra_args(false);
  return *this;
}
Argument& Argument::exactly(int count, const std::string& help) {
  option_->expected(count)->description(help);
  return *this;
}

Arguments Arguments::verb(const std::string& name, const std::string& help) {
  app_->require_subcommand(1);
  return Arguments(*app_->add_subcommand(name, help));
}

Arguments Arguments::further_verb(const std::string& name, const std::string& help) {
  return Arguments(*app_->add_subcommand(name, help));
}

Argument Arguments::add(const std::string& name, std::string& value, const std::string& help) {
  return Argument(*app_->add_option(name, value, help));
}
Argument Arguments::add(const std::string& name, double& value, const std::string& help) {
  return Argument(*app_->add_option(name, value, help));
}
Argument Arguments::add(const std::string& name, int& value, const std::string& help) {
  return Argument(*app_->add_option(name, value, help));
}
Argument Arguments::add(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  return Argument(*app_->add_option(name, values, help));
}
Argument Arguments::add(const std::string& name, const Take& take, const std::string& help) {
  const auto told = [name, take](const std::string& word) {
    if (const auto wrong = take(word)) throw CLI::ValidationError(name, *wrong);
  };
  return Argument(*app_->add_option_function<std::string>(name, told, help));
}

void Arguments::flag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
}
void Arguments::flag(const std::string& name, const std::function<void()>& given, const std::string& help) {
  app_->add_flag_callback(name, given, help);
}
void Arguments::footer(const std::string& text) {
  app_->footer(text);
}
void Arguments::fall_through() {
  app_->fallthrough();
}
void Arguments::allow_others() {
  app_->allow_extras();
}
std::vector<std::string> Arguments::others() const {
  return app_->remaining();
}
void Arguments::when_chosen(const std::function<void()>& action) {
  app_->callback([app = app_, action] {
    if (app->get_subcommands().empty()) action();
  });
}

Command::Command(const std::string& name, const std::string& about, const std::string& version)
    : app_(std::make_unique<CLI::App>(about, name)) {
  app_->get_formatter()->column_width(36);
  app_->set_version_flag("--version", version);
}
Command::~Command() = default;

std::optional<int> Command::parse(int argc, const char* const* argv, std::ostream& out,
                                  std::ostream& errors) {
  try {
    app_->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_->exit(error, out, errors);  // help, version
    if (const std::optional<std::string> message = unknown_verb(*app_))
      errors << *message << '\n';
    else
      app_->exit(error, out, errors);
    return static_cast<int>(ExitCode::config);
  }
}

}  // namespace trainyard::cli
