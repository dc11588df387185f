// The host's own keys of a run file in one table: it serves checking, defaults, suggestions and `config
// schema`. The keys of a plugin are in its manifest.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <trainyard/manifest.hpp>

namespace trainyard::config {

/// Units that a duration may have at a place.
enum class Units : std::uint8_t {
  any,
  length,    ///< of the run itself: no percentage
  progress,  ///< no wall time: a place in the run that is the same each time
  time,      ///< wall time only
};

struct Key : OptionSpec {
  Units units = Units::any;
  std::vector<std::string> synonyms;  ///< what other trainers call it: unknown here, but suggested from
};

/// A table of the run file.
struct Section {
  std::string path;  ///< "trainer", "logging.sinks"; empty: the file itself
  std::string help;
  std::string kind;  ///< of the plugin that fills it (`type`, and its options beside `keys`)
  std::vector<std::string> default_types;  ///< the plugins where the file has no such table
  bool list = false;                       ///< [[path]]
  bool required = false;
  std::vector<Key> keys;
};

/// A table before those within it.
const std::vector<Section>& schema();

/// The section of a path; there is one.
const Section& section(std::string_view path);

/// The sections directly within one: of "data": data.train, data.val, data.test, data.sampler.
std::vector<const Section*> children(std::string_view path);
bool has_child(const Section& section, std::string_view name);

/// Its keys as the options of a plugin are, for what treats both alike.
std::vector<OptionSpec> specs_of(const Section& section);

/// The last part of its path: "grad_clip" of trainer.grad_clip.
std::string name_of(const Section& section);
/// As it stands in a file: "[trainer]", "[[logging.sinks]]"; of the file itself: "the run file".
std::string header(const Section& section);

/// ">= 1 and <= 64", "> 0", "" for none.
std::string range_text(const OptionSpec& spec);
/// "float", "list of strings", "duration": for messages.
std::string type_text(const OptionSpec& spec);

/// All keys with type, default, allowed values and help.
std::string schema_text();
std::string schema_json();

}  // namespace trainyard::config
