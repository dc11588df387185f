#include "core/cli/arguments.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>

#include <trainyard/error.hpp>

#include "core/cli/run_state.hpp"
#include "core/runfile/suggest.hpp"

namespace trainyard::cli {
namespace {

/// Returns the message for a word that is no verb where one was expected, with the verbs that exist. Nothing
/// where the parse failed for another reason. `app` is the one after the parse.
std::optional<std::string> unknown_verb(const CLI::App& app) {
  std::string path = app.get_name();
  const CLI::App* last = &app;  // last verb that was understood
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

/// Returns a validator that checks nothing; its name tells the kind of the option.
CLI::Validator named(const std::string& what) {
  return CLI::Validator([](std::string&) { return std::string(); }, "", what);
}

/// Copies the words or kind that an option declares into an offer.
void describe(const CLI::Option& option, Offer& offer) {
  auto& all = const_cast<CLI::Option&>(option);  // CLI11's getter is not const
  try {
    for (int i = 0;; ++i) {
      const CLI::Validator& each = *all.get_validator(i);
      if (each.get_name() != "words") {
        if (!each.get_name().empty()) offer.what = each.get_name();
        continue;
      }
      const std::string set = each.get_description();  // "{text,json}"
      offer.words = CLI::detail::split(set.substr(1, set.size() - 2), ',');
    }
  } catch (const CLI::OptionNotFound&) {}  // there are no more validators
}

const CLI::Option* find_option(const CLI::App& verb, const std::string& name) {
  for (const CLI::App* app = &verb; app != nullptr; app = app->get_parent())
    for (const CLI::Option* option : app->get_options())
      if (!option->get_positional() && option->check_name(name)) return option;
  return nullptr;
}

std::vector<std::string> option_names(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::App* app = &verb; app != nullptr; app = app->get_parent())
    for (const CLI::Option* option : app->get_options())
      for (const std::string& name : option->get_lnames())
        if (app == &verb || name != "version") names.push_back("--" + name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

/// Describes the positional argument number `place`; the last one takes all that follow.
void describe_place(const CLI::App& verb, std::size_t place, Offer& offer) {
  const auto options = verb.get_options([](const CLI::Option* option) { return option->get_positional(); });
  if (options.empty()) return;
  const CLI::Option& last = *options.back();
  if (place < options.size())
    describe(*options[place], offer);
  else if (last.get_items_expected_max() > 1)
    describe(last, offer);
}

const CLI::App* find_verb(const CLI::App& verb, const std::string& name) {
  for (const CLI::App* each : verb.get_subcommands([](const CLI::App*) { return true; }))
    if (each->get_name() == name) return each;
  return nullptr;
}

}  // namespace

Argument& Argument::required() {
  option_->required();
  return *this;
}
Argument& Argument::existing_file() {
  option_->check(CLI::ExistingFile);
  return offers("file");
}
Argument& Argument::run_file() {
  const auto exists = [](std::string& word) {
    std::string file = run_file_of(word);
    return std::filesystem::exists(file) ? CLI::ExistingFile(file) : runs_instead_of(word);
  };
  option_->check(CLI::Validator(exists, "", "run_file"));
  return *this;
}
Argument& Argument::run(bool is_there) {
  option_->transform(CLI::Validator(
      [is_there](std::string& word) {
        word = find_run(word);
        return is_there && !std::filesystem::exists(word) ? runs_instead_of(word) : std::string();
      },
      "", "run"));
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
  option_->check(CLI::IsMember(words).name("words"));
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

Argument& Argument::offers(const std::string& what) {
  option_->check(named(what));
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
  app_->add_flag(name, value, help)->disable_flag_override();  // forbids --name=value
}
void Arguments::flag(const std::string& name, const std::function<void()>& given, const std::string& help) {
  app_->add_flag_callback(name, given, help)->disable_flag_override();
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
    if (error.get_exit_code() == 0) return app_->exit(error, out, errors);  // help or version was asked for
    if (const std::optional<std::string> message = unknown_verb(*app_))
      errors << *message << '\n';
    else
      app_->exit(error, out, errors);
    return static_cast<int>(ExitCode::config);
  }
}

bool Command::has_verb(const std::string& name) const {
  return find_verb(*app_, name) != nullptr;
}

Offer Command::offer(const std::vector<std::string>& words) const {
  const CLI::App* verb = app_.get();
  const CLI::Option* open = nullptr;  // an option that still needs its value
  Offer offer;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (open != nullptr) {
      open = nullptr;
    } else if (word.starts_with('-')) {
      const CLI::Option* option = find_option(*verb, word);
      if (option != nullptr && option->get_items_expected_max() > 0) open = option;
    } else if (const CLI::App* next = find_verb(*verb, word)) {
      verb = next;
      if (!verb->get_fallthrough()) offer.before.clear();
    } else {
      offer.before.push_back(word);
    }
  }
  const std::string now = words.empty() ? "" : words.back();
  if (open == nullptr && now.starts_with('-')) {
    const std::size_t equals = now.find('=');
    if (equals == std::string::npos) {
      offer.words = option_names(*verb);
      return offer;
    }
    open = find_option(*verb, now.substr(0, equals));
    if (open == nullptr) return offer;
  }
  if (open != nullptr) {
    describe(*open, offer);
    return offer;
  }
  for (const CLI::App* each : verb->get_subcommands([](const CLI::App*) { return true; }))
    offer.words.push_back(each->get_name());
  if (verb == app_.get()) offer.what = "verb";
  // A run that precedes a verb of `ctl` is an argument of `ctl`.
  const bool of_parent = verb->get_fallthrough() && verb->get_parent() != app_.get();
  const std::size_t place =
      offer.before.size() - (of_parent ? std::min<std::size_t>(1, offer.before.size()) : 0);
  Offer at_place;
  describe_place(*verb, place, at_place);
  offer.words.insert(offer.words.end(), at_place.words.begin(), at_place.words.end());
  if (!at_place.what.empty()) offer.what = at_place.what;
  return offer;
}

}  // namespace trainyard::cli
