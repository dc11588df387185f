// The tables of a run file: those of the host (host_keys.hpp) and those that plugins fill (kinds.hpp). They
// serve checking, defaults, suggestions, resumes and `config schema`. The options of a plugin are in its
// manifest.
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
  std::string kind;  ///< of the plugin that fills it (`type`, and its options beside `keys`)
  std::vector<std::string> default_types;  ///< the plugins where the file has no such table
  bool list = false;                       ///< [[path]]
  bool required = false;
  ChangeClass type_change = ChangeClass::journalled;  ///< of `type`
  ChangeClass change = ChangeClass::journalled;  ///< of what its keys do not say otherwise, options included
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

/// All keys with type, default, allowed values and help; of one table and those within it, where a path is given.
/// Throws ConfigError for a path that is none.
std::string schema_text(const std::string& path = {});
std::string schema_json(const std::string& path = {});

}  // namespace trainyard::config
