// Reads the file of a study and checks its table [study] like tables of a run file. Torch-free.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/study.hpp>

#include "core/plugins/registry.hpp"

namespace trainyard::cli {

struct StudyFileOptions {
  std::string file;
  std::vector<std::string> sets;  ///< "study.seeds=3"
  std::vector<std::string> plugin_folders;
  bool json = false;  ///< findings as JSON
};

struct StudyFile {
  std::string name;  ///< name of the file without folder and extension
  plugins::PluginFile plugin;
  Table options;        ///< checked, with defaults filled in
  StudyOptions common;  ///< the options that every study has
};

/// Reads the file; nothing where it is not valid: then the report has been printed to standard error, or as
/// JSON to standard output.
std::optional<StudyFile> read_study_file(const StudyFileOptions& options);

/// Makes an object of the study's plugin. Loads LibTorch only if the plugin needs it. Throws PluginError.
std::unique_ptr<Study> make_study(const StudyFile& file);

}  // namespace trainyard::cli
