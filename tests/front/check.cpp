#include <catch2/catch.hpp>

#include <trainyard/event.hpp>
#include "core/plugins/check.hpp"

namespace check_tests {

using namespace trainyard;
using plugins::problems;

namespace {

ManifestData example() {
  return {.kind = "hook", .revision = 1, .name = "ema", .version = "1.0.0", .summary = "An average."};
}

using Lines = std::vector<std::string>;

Lines with(OptionSpec option) {
  ManifestData manifest = example();
  if (option.help.empty()) option.help = "help";
  manifest.options = {std::move(option)};
  return problems(manifest);
}

Lines with(HookSpec hook) {
  ManifestData manifest = example();
  manifest.hooks = {std::move(hook)};
  return problems(manifest);
}

}  // namespace

TEST_CASE("a manifest's own words are checked") {
  CHECK(problems(example()).empty());
  ManifestData manifest = example();
  manifest.name = "Ema";
  manifest.version = "1.0";
  manifest.summary = "";
  manifest.revision = 2;
  manifest.needs = {"luck"};
  CHECK(problems(manifest).size() == 5);
  manifest = example();
  manifest.kind = "planet";
  CHECK(problems(manifest) == Lines{"its kind planet/1 is none of this SDK's"});
  manifest = example();
  manifest.options = {{.name = "type", .help = "h"}, {.name = "a", .help = ""}, {.name = "a", .help = "h"}};
  CHECK(problems(manifest) == Lines{"option `type`: the run file uses this key for the plugin itself",
                                    "option `a`: has no help text", "option `a`: is declared twice"});
}

TEST_CASE("a default must keep its option's own rules") {
  using enum OptionType;
  CHECK(with({.name = "p", .type = number, .fallback = Value(0.5), .minimum = 0.0, .maximum = 1.0}).empty());
  CHECK(with({.name = "p", .type = number, .fallback = Value(1.5), .minimum = 0.0, .maximum = 1.0}) ==
        Lines{"option `p`: has the default 1.5, above its own maximum 1"});
  CHECK(with({.name = "p", .type = number, .fallback = Value(0.0), .minimum = 0.0, .open_minimum = true}) ==
        Lines{"option `p`: has the default 0, below its own minimum 0"});
  CHECK(with({.name = "n", .type = integer, .fallback = Value(0.5)}) ==
        Lines{"option `n`: has a default of type float, expected integer"});
  CHECK(
      with({.name = "b", .type = number, .list = true, .fallback = Value(Array{0.5, 2.0}), .maximum = 1.0}) ==
      Lines{"option `b`: has the default 2, above its own maximum 1"});
  CHECK(with({.name = "m", .type = string, .fallback = Value("x"), .choices = {"a", "b"}}) ==
        Lines{"option `m`: has the default \"x\", which is none of its choices: a, b"});
  CHECK(with({.name = "d", .type = duration, .fallback = Value("ten")}) ==
        Lines{"option `d`: has the default \"ten\", which is no duration"});
  CHECK(with({.name = "t", .type = table, .fallback = Value(1), .fields = {{.name = "x", .help = "h"}}}) ==
        Lines{"option `t`: has a default of type integer, expected table"});
  CHECK(with({.name = "r", .type = number, .minimum = 2.0, .maximum = 1.0}) ==
        Lines{"option `r`: has the empty range 2 to 1"});
  CHECK(with({.name = "s", .type = string, .minimum = 0.0}) ==
        Lines{"option `s`: has a range but is no number"});
  const std::string no_list =
      "option `p`: holds plugins but is no list of tables without fields of their own";
  CHECK(with({.name = "p", .type = table, .list = true, .plugins = "schedule"}).empty());
  CHECK(with({.name = "p", .type = table, .plugins = "schedule"}) == Lines{no_list});
  CHECK(with({.name = "p", .type = string, .list = true, .plugins = "schedule"}) == Lines{no_list});
  CHECK(with({.name = "p", .type = table, .list = true, .plugins = "planet"}) ==
        Lines{"option `p`: holds plugins of the kind \"planet\", which is none of this SDK's"});
  CHECK(with({.name = "t", .type = table}) == Lines{"option `t`: is a table without fields"});
  CHECK(with({.name = "t", .type = table, .fields = {{.name = "X", .help = "h"}}}) ==
        Lines{"option `t.X`: expected a name of lower-case letters, digits and _, a letter first"});
}

TEST_CASE("a hook may write what its event allows") {
  CHECK(with({.event = Event::after_step, .phase = Phase::transform, .writes = Region::model}).empty());
  CHECK(with({.event = Event::eval_start, .phase = Phase::transform, .writes = Region::model}).empty());
  CHECK(
      with({.event = Event::batch_end, .phase = Phase::transform, .writes = Region::grads | Region::hyper}) ==
      Lines{"hook at batch_end: writes grads, hyper, the event allows hyper, metrics, control, plugin_own"});
  CHECK(with({.event = Event::after_step, .phase = Phase::observe, .writes = Region::model}).size() == 1);
  CHECK(with({.event = Event::after_step, .phase = Phase::transform}).size() == 1);
  CHECK(with({.event = Event::after_step, .priority = 101}).size() == 1);
  CHECK(with({.event = Event::after_step, .before = {"ema"}}) ==
        Lines{"hook at after_step: is ordered against itself"});
  CHECK(with({.event = Event::after_step, .cadence = {.every = "often"}}) ==
        Lines{"hook at after_step: has the cadence \"often\", which is no duration"});
}

TEST_CASE("the event table: what may never be written") {
  for (std::size_t i = 0; i < event_count; ++i) {
    const auto event = static_cast<Event>(i);
    INFO(name(event));
    CHECK(writable(event).contains(Region::plugin_own));
    const bool model = event == Event::model_ready || event == Event::after_load ||
                       event == Event::fit_start || event == Event::before_step ||
                       event == Event::after_step || event == Event::eval_start || event == Event::eval_end;
    CHECK(writable(event).contains(Region::model) == model);
  }
  CHECK(writable(Event::exception) == Regions(Region::plugin_own));
  CHECK(writable(Event::before_step) ==
        (Region::model | Region::grads | Region::hyper | Region::control | Region::plugin_own));
}

}  // namespace check_tests
