#include "core/runfile/plugins_together.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "core/plugins/kinds.hpp"
#include "core/plugins/needs.hpp"
#include "core/runfile/at_path.hpp"
#include "core/runfile/print.hpp"

namespace trainyard::config {
namespace {

using plugins::Comparison, plugins::Feature;

/// Compares a value of the run file to a word of a manifest; "none" matches one that is absent or empty.
bool is_word(const Value* value, std::string_view word) {
  if (value == nullptr) return word == "none";
  if (const auto* text = value->get_if<std::string>())
    return *text == word || (text->empty() && word == "none");
  if (const auto* truth = value->get_if<bool>()) return word == (*truth ? "true" : "false");
  if (const auto* array = value->get_if<Array>()) return array->empty() && word == "none";
  double number = 0.0;
  if (std::from_chars(word.begin(), word.end(), number).ec != std::errc()) return false;
  if (const auto* integer = value->get_if<std::int64_t>()) return static_cast<double>(*integer) == number;
  const auto* real = value->get_if<double>();
  return real != nullptr && *real == number;
}

bool holds(const Comparison& comparison, const Value* value) {
  const auto is_it = [&](std::string_view word) { return is_word(value, word); };
  return std::ranges::any_of(comparison.words, is_it) == comparison.equal;
}

/// Returns whether a need or feature of a plugin applies with its options, in this run.
bool applies(const Feature& feature, const Table& options, const Table& run) {
  return std::ranges::all_of(feature.conditions, [&](const Comparison& condition) {
    const bool of_run = condition.key.find('.') != std::string_view::npos;
    return holds(condition, value_at(of_run ? run : options, condition.key));
  });
}

std::string named(const PluginInUse& used) {
  return "the " + used.plugin->manifest.kind + " \"" + used.plugin->manifest.name + "\"";
}

/// Returns whether a step reads a region written at an event: rates and decay from its epoch's start on.
bool of_step(Event event, Region region) {
  if (event == Event::epoch_start || event == Event::epoch_end) return region == Region::hyper;
  return event >= Event::batch_start && event <= Event::batch_end;
}

/// Checks the plugins of one run against each other. A missing plugin is reported already.
class Together {
 public:
  Together(const std::vector<PluginInUse>& plugins, const Table& resolved, const RunOffer& offer,
           Findings& findings)
      : plugins_(plugins), resolved_(resolved), offer_(offer), findings_(findings) {
    executor_ = find([](const PluginInUse& used) { return used.plugin->manifest.kind == "executor"; });
  }

  void check() {
    for (const PluginInUse& used : plugins_) {
      for (const HookSpec& hook : used.plugin->manifest.hooks)
        if (executor_ != nullptr) check_hook(used, hook);
      for (const std::string& need : used.plugin->manifest.needs) check_need(used, need);
      if (used.plugin->manifest.kind == "rule") check_need(used, "hyper where action = lr_scale");
      check_conflicts(used);
    }
  }

 private:
  template <class Test>
  const PluginInUse* find(Test&& test) const {
    const auto found = std::ranges::find_if(plugins_, test);
    return found == plugins_.end() ? nullptr : &*found;
  }

  bool provides(const PluginInUse& used, std::string_view name) const {
    return std::ranges::any_of(used.plugin->manifest.provides, [&](const std::string& text) {
      const std::optional<Feature> feature = plugins::parse_feature(text);
      return feature && feature->name == name && applies(*feature, used.options, resolved_);
    });
  }

  void refuse(const char* code, const PluginInUse& used, const std::string& what, const std::string& mend) {
    findings_.error(code, used.at, used.slot + ": " + named(used) + " " + what, mend);
  }

  /// Reports a hook that would never be called, or whose writes would be lost. The recorder is exempt, as it
  /// runs where it can: each rule states the events without which it cannot do.
  void check_hook(const PluginInUse& used, const HookSpec& hook) {
    if (used.plugin->manifest.kind == "recorder") return;
    const std::string at = std::string(name(hook.event)) + ", which " + named(*executor_) + " does not ";
    if (of_micro(hook.event) && std::ranges::find(executor_->plugin->manifest.fires, hook.event) ==
                                    executor_->plugin->manifest.fires.end())
      return refuse("E322", used, "has a hook on " + at + "fire",
                    "drop the plugin, or take an executor that fires it");
    for (const Region region : {Region::grads, Region::hyper, Region::batch, Region::outputs, Region::model})
      if (of_step(hook.event, region) && hook.writes.contains(region) && !provides(*executor_, name(region)))
        refuse("E322", used, "writes " + std::string(name(region)) + " at " + at + "honour",
               "drop the plugin, or take an executor that honours it");
  }

  void check_need(const PluginInUse& used, std::string_view text) {
    const std::optional<Feature> need = plugins::parse_feature(text);
    if (!need || !applies(*need, used.options, resolved_)) return;
    const Lack lack = need->key ? lack_of_key(*need->key, need->text)
                      : plugins::find_provided(need->name) != nullptr
                          ? lack_of_feature(*plugins::find_provided(need->name), need->absent)
                      : need->absent ? lack_of_absence(std::string(need->name))
                                     : lack_of_run(need->name);
    if (lack.demand.empty()) return;
    const std::string where(need->conditions.empty() ? "" : text.substr(text.find(" where ")));
    const std::string found = lack.demand + where + ", and " + lack.found;
    if (!need->wish) return refuse("E303", used, "needs " + found, lack.mend);
    findings_.warning("E324", used.at, used.slot + ": " + named(used) + " does all it can only with " + found,
                      lack.mend);
  }

  /// A demand that the run does not meet; empty if it meets it.
  struct Lack {
    std::string demand, found, mend;
  };

  Lack lack_of_key(const Comparison& wanted, std::string_view text) const {
    const Value* value = value_at(resolved_, wanted.key);
    if (value == nullptr || holds(wanted, value)) return {};
    const PluginInUse* owner =
        find([&](const PluginInUse& each) { return wanted.key.starts_with(each.slot + "."); });
    return {std::string(text),
            "it is " + toml_text(*value) + (owner == nullptr ? "" : " of " + named(*owner)),
            "set " + std::string(wanted.key) + ", or take another plugin or option"};
  }

  Lack lack_of_feature(const plugins::Provided& feature, bool absent) const {
    const auto is_one = [&](const PluginInUse& each) { return each.plugin->manifest.kind == feature.kind; };
    const auto is_part = [&](const PluginInUse& part) {  // of one that has what its parts may lack
      return find([&](const PluginInUse& each) {
               return is_one(each) && part.slot.starts_with(each.slot + ".");
             }) != nullptr;
    };
    const PluginInUse* other = find([&](const PluginInUse& each) {
      return is_one(each) && provides(each, feature.name) && (absent || !is_part(each));
    });
    if ((other != nullptr) != absent) return {};
    if (!absent) other = find(is_one);
    const bool is_list = plugins::find_kind(feature.kind)->place == plugins::KindRow::Place::list;
    if (other == nullptr && !is_list) return {};
    const std::string kind(feature.kind), what(feature.what);
    const std::string article =
        std::string_view("aeiou").find(kind.front()) != std::string_view::npos ? "an " : "a ";
    return {article + kind + (absent ? " without " : " with ") + what,
            other == nullptr ? "there is none" : named(*other) + (absent ? " has it" : " has none"),
            (is_list ? "add such a " : "take another ") + kind + ", or drop this plugin"};
  }

  Lack lack_of_absence(const std::string& path) const {
    if (value_at(resolved_, path) == nullptr) return {};
    const PluginInUse* other = find([&](const PluginInUse& each) { return each.slot == path; });
    return {"a run without [" + path + "]", "there is " + (other == nullptr ? "one" : named(*other)),
            "leave [" + path + "] out, or take another plugin or option"};
  }

  Lack lack_of_run(std::string_view need) const {
    const auto* device = at_path<std::string>(resolved_, "run.device");
    const auto* precision = at_path<std::string>(resolved_, "trainer.precision");
    if (need == "cuda" && device != nullptr && *device == "cpu")
      return {"a GPU", "run.device is \"cpu\"",
              "set run.device = \"cuda\", or take another plugin or option"};
    if (need == "distributed" && offer_.ranks == 1)
      return {"a run of several ranks", "this is one of a single",
              "start it by torchrun or with --ranks N, or take another plugin or option"};
    if (need == "one rank" && offer_.ranks > 1)
      return {"a run that trains on one rank", "this has " + std::to_string(offer_.ranks),
              "start it without --ranks, or take another plugin or option"};
    if (need == "steps" && !offer_.steps)
      return {"a run whose length can be counted in steps", "trainer.max_duration is a time",
              "give max_duration in ep, ba, sp or tok and bound the time with trainer.max_wall_time, or take "
              "another plugin (the schedule \"constant\")"};
    if (need == "fp32" && precision != nullptr && *precision == "fp64")
      return {"weights of single precision", "trainer.precision is \"fp64\"",
              "set trainer.precision = \"fp32\", or take another plugin or option"};
    if (need == "rows") return lack_of_feature(*plugins::find_provided("free_rows"), true);
    return {};
  }

  void check_conflicts(const PluginInUse& used) {
    for (const std::string& name : used.plugin->manifest.conflicts) {
      const PluginInUse* rival = find([&](const PluginInUse& each) {
        return each.plugin != used.plugin && each.plugin->manifest.name == name;
      });
      if (rival != nullptr)
        refuse("E304", used, "cannot be in a run with " + named(*rival) + " of " + rival->slot,
               "drop one of the two");
    }
  }

  const std::vector<PluginInUse>& plugins_;
  const Table& resolved_;
  const RunOffer& offer_;
  Findings& findings_;
  const PluginInUse* executor_ = nullptr;
};

/// Reports restore_best with hooks that replace the weights in evaluation passes, which choose the best.
void check_best_weights(const std::vector<PluginInUse>& plugins, const Table& resolved, Findings& findings) {
  const auto* wanted = at_path<bool>(resolved, "trainer.restore_best");
  if (wanted == nullptr || !*wanted) return;
  for (const PluginInUse& used : plugins)
    for (const HookSpec& hook : used.plugin->manifest.hooks)
      if (hook.event == Event::eval_start && hook.writes.contains(Region::model))
        findings.error("E323", used.at,
                       used.slot + ": " + named(used) + " puts other weights in place for evaluations, and " +
                           "trainer.restore_best takes back those of the model alone",
                       "drop one of the two");
}

}  // namespace

bool needs_ranks(const plugins::PluginFile& plugin, const Table& options, const Table& run) {
  return std::ranges::any_of(plugin.manifest.needs, [&](const std::string& text) {
    const std::optional<Feature> need = plugins::parse_feature(text);
    return need && !need->wish && need->name == "distributed" && applies(*need, options, run);
  });
}

void check_together(const std::vector<PluginInUse>& plugins, const Table& resolved, const RunOffer& offer,
                    Findings& findings) {
  Together(plugins, resolved, offer, findings).check();
  check_best_weights(plugins, resolved, findings);
}

}  // namespace trainyard::config
