// The file of a study: what its table [study] says, checked as the tables of a run file are. Torch-free.
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
  std::string name;  ///< of the file, without folder and ending
  plugins::PluginFile plugin;
  Table options;        ///< checked, defaults filled in
  StudyOptions common;  ///< of them, those of every study
};

/// Nothing where the file is not valid; the report has been printed then, to standard error, or as JSON to standard
/// output.
std::optional<StudyFile> read_study_file(const StudyFileOptions& options);

/// A new object of the study's plugin. Loads no LibTorch, unless the plugin itself needs it. Throws PluginError.
std::unique_ptr<Study> make_study(const StudyFile& file);

}  // namespace trainyard::cli
