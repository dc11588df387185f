// Describes the tables of a run file: those of the host (host_keys.hpp) and those that plugins fill
// (kinds.hpp). They serve checking, defaults, suggestions, resumes and `config schema`. The options of a
// plugin are in its manifest.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/runfile/keys.hpp"

namespace trainyard::config {

/// A table of the run file.
struct Section {
  std::string path;  ///< "trainer", "logging.sinks"; empty: the file itself
  std::string help;
  std::string kind;  ///< kind of the plugin that fills it (`type`, and its options beside `keys`)
  std::vector<std::string> default_types;  ///< plugins used if the file has no such table
  bool list = false;                       ///< [[path]]
  bool required = false;
  ChangeClass type_change = ChangeClass::journalled;  ///< class of `type` on resume
  ChangeClass change = ChangeClass::journalled;       ///< class of other keys and options on resume
  std::vector<Key> keys;
};

/// Returns all sections, each table before those within it.
const std::vector<Section>& schema();

/// Returns the section of a path, which has to exist.
const Section& section(std::string_view path);

/// Returns the sections directly within one; for "data": data.train, data.val, data.test, data.sampler.
std::vector<const Section*> children(std::string_view path);
bool has_child(const Section& section, std::string_view name);

/// Returns its keys as options of a plugin, for code that treats both alike.
std::vector<OptionSpec> specs_of(const Section& section);

/// Returns the last part of its path: "grad_clip" of trainer.grad_clip.
std::string name_of(const Section& section);
/// Returns the header as in a file: "[trainer]", "[[logging.sinks]]"; for the file itself: "the run file".
std::string header(const Section& section);

/// Prints all keys with type, default, allowed values and help; with a path, of that table and those within
/// it. Throws ConfigError if there is no such path.
std::string schema_text(const std::string& path = {});
std::string schema_json(const std::string& path = {});

}  // namespace trainyard::config
