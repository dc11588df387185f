#include <catch2/catch.hpp>

#include <trainyard/error.hpp>

#include "core/plugins/fingerprint.hpp"
#include "core/plugins/manifest_text.hpp"
#include "core/plugins/plain_toml.hpp"
#include "lib/sha256.hpp"

namespace manifest_text_tests {

using namespace trainyard;
using namespace trainyard::plugins;

namespace {

PluginFile example() {
  OptionSpec field{
      .name = "scale", .type = OptionType::number, .fallback = Value(1.0), .help = "of the rate"};
  OptionSpec groups{
      .name = "groups", .type = OptionType::table, .list = true, .fields = {field}, .help = "by name"};
  OptionSpec rate{.name = "rate",
                  .type = OptionType::number,
                  .fallback = Value(0.5),
                  .minimum = 0.0,
                  .maximum = 1.0,
                  .open_minimum = true,
                  .open_maximum = true,
                  .help = "a \"rate\""};
  OptionSpec mode{.name = "mode",
                  .type = OptionType::string,
                  .required = true,
                  .choices = {"a", "b"},
                  .output = true,
                  .metric = true,
                  .synonyms = {"way", "manner"},
                  .common = true};
  HookSpec hook{.event = Event::after_step,
                .phase = Phase::transform,
                .writes = Region::model | Region::plugin_own,
                .priority = 7,
                .before = {"x"},
                .after = {"y", "z"},
                .cadence = {"10ba", "1ep", "50%"}};
  PluginFile file;
  file.manifest = {.kind = "optimizer",
                   .revision = 1,
                   .name = "example",
                   .version = "1.2.3",
                   .summary = "All of it.",
                   .options = {rate, mode, groups},
                   .hooks = {hook},
                   .needs = {"cuda"},
                   .conflicts = {"other"}};
  file.build = host_facts();
  file.build["headers"] = to_text(host_contract());
  file.digest = std::string(64, 'a');
  return file;
}

/// A text that says what it wants and is sealed all the same.
std::string sealed(const std::string& body) {
  return body + "seal = {segments = \"" + std::string(64, 'a') + "\", manifest = \"" + lib::Sha256::of(body) +
         "\"}\n";
}

std::string body_of(const PluginFile& file) {
  const std::string text = to_text(file);
  return text.substr(0, text.rfind("seal = "));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string refusal(const std::string& text) {
  try {
    from_text(text);
  } catch (const PluginError& error) {
    return error.what();
  }
  return "taken";
}

}  // namespace

TEST_CASE("a manifest reads back as it was written, field by field") {
  const PluginFile file = example();
  const PluginFile read = from_text(to_text(file)).front();
  CHECK(to_text(read) == to_text(file));
  CHECK(read.digest == file.digest);
  CHECK(read.build == file.build);
  const ManifestData& manifest = read.manifest;
  CHECK(manifest.kind == "optimizer");
  CHECK(manifest.revision == 1);
  CHECK(manifest.name == "example");
  CHECK(manifest.version == "1.2.3");
  CHECK(manifest.summary == "All of it.");
  CHECK(manifest.needs == std::vector<std::string>{"cuda"});
  CHECK(manifest.conflicts == std::vector<std::string>{"other"});
  REQUIRE(manifest.options.size() == 3);
  CHECK(manifest.options[1].output);
  CHECK_FALSE(manifest.options[0].output);
  CHECK(manifest.options[1].metric);
  CHECK_FALSE(manifest.options[0].metric);
  CHECK(manifest.options[1].synonyms == std::vector<std::string>{"way", "manner"});
  const OptionSpec& rate = manifest.options[0];
  CHECK(rate.name == "rate");
  CHECK(rate.type == OptionType::number);
  CHECK(rate.fallback->as<double>() == 0.5);
  CHECK(rate.minimum == 0.0);
  CHECK(rate.maximum == 1.0);
  CHECK(rate.open_minimum);
  CHECK(rate.open_maximum);
  CHECK(rate.help == "a \"rate\"");
  CHECK(!rate.list);
  CHECK(!rate.required);
  CHECK(!rate.common);
  CHECK(manifest.options[1].required);
  CHECK(manifest.options[1].common);
  CHECK(manifest.options[1].choices == std::vector<std::string>{"a", "b"});
  CHECK(!manifest.options[1].fallback);
  CHECK(manifest.options[2].list);
  REQUIRE(manifest.options[2].fields.size() == 1);
  CHECK(manifest.options[2].fields[0].name == "scale");
  REQUIRE(manifest.hooks.size() == 1);
  const HookSpec& hook = manifest.hooks[0];
  CHECK(hook.event == Event::after_step);
  CHECK(hook.phase == Phase::transform);
  CHECK(hook.writes == (Region::model | Region::plugin_own));
  CHECK(hook.priority == 7);
  CHECK(hook.before == std::vector<std::string>{"x"});
  CHECK(hook.after == std::vector<std::string>{"y", "z"});
  CHECK(hook.cadence == Cadence{"10ba", "1ep", "50%"});
}

TEST_CASE("a changed manifest is refused, whatever was changed") {
  const std::string text = to_text(example());
  int taken = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    // A change of the code's digest alone is found when the code is digested.
    if (refusal(changed) != "taken") continue;
    ++taken;
    CHECK(from_text(changed).front().digest != example().digest);
  }
  CHECK(taken <= 64);
  CHECK(refusal(replaced(text, "rate", "late")) ==
        "its manifest was changed after it was sealed; build the plugin again");
  CHECK(refusal("") == "its manifest does not end with a seal; build the plugin again");
}

TEST_CASE("a sealed text with anything unknown, missing or of the wrong type is refused") {
  const std::string body = body_of(example());
  CHECK(refusal(sealed(body)) == "taken");
  CHECK(refusal(sealed(body + "colour = \"red\"\n")) == "manifest: `colour` is not known to this host");
  CHECK(refusal(sealed(replaced(body, "name = \"example\"", "name = 3"))) ==
        "manifest: `name` is of type integer, expected string");
  CHECK(refusal(sealed(replaced(body, "version = \"1.2.3\"\n", ""))) == "manifest: `version` is missing");
  CHECK(refusal(sealed(replaced(body, "type = \"float\"", "type = \"complex\""))) ==
        "options[0]: `type` is \"complex\", which this host does not know");
  CHECK(refusal(sealed(replaced(body, "min = 0.0", "min = 0"))) ==
        "options[0]: `min` is of type integer, expected float");
  CHECK(refusal(sealed(replaced(body, "name = \"scale\"", "label = \"scale\""))) ==
        "options[2]: options[0]: `name` is missing");
  CHECK(refusal(sealed(replaced(body, "after_step", "after_lunch"))) ==
        "hooks[0]: `event` is \"after_lunch\", which this host does not know");
  CHECK(refusal(sealed(replaced(body, "priority = 7", "priority = 700"))) ==
        "hooks[0]: `priority` is 700, expected 0 to 100");
  CHECK(refusal(sealed(replaced(body, "kind = \"optimizer\"", "kind = \"oven\""))) ==
        "its kind is \"oven\", which this host does not know; a newer host may run it");
  CHECK(refusal(sealed(replaced(body, "revision = 1", "revision = 2"))) ==
        "its kind is optimizer/2, this host runs optimizer/1; rebuild it against this host's SDK");
}

TEST_CASE("a build for another host is refused, each differing field with both values and the mend") {
  PluginFile file = example();
  file.build["sdk"] = "9.7";
  file.build["isa"] = "avx512";
  const std::string message = refusal(to_text(file));
  CHECK(message.find("SDK is 9.7, the host's is " TRAINYARD_SDK_VERSION ": rebuild it against") !=
        std::string::npos);
  CHECK(message.find("instruction set is avx512, the host's is " TRAINYARD_ISA ": rebuild it without") !=
        std::string::npos);
  CHECK(message.find("LibTorch") == std::string::npos);
  file.build.erase("libtorch");
  CHECK(refusal(to_text(file)).find("LibTorch is (not stated), the host's is " TRAINYARD_LIBTORCH_VERSION) !=
        std::string::npos);
}

}  // namespace manifest_text_tests
