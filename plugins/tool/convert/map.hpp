// What the tensors of a family of files are called here, and what is done to them: maps/NAME.toml.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pattern.hpp"

namespace convert {

/// One tensor of ours, made of one or several of the file.
struct Line {
  Pattern ours;
  std::vector<Pattern> file;  ///< several are joined along the first axis, in this order
  bool transpose = false;     ///< each of the file's, of two dimensions
  std::vector<std::string>
      shares;        ///< of several: by which options of the model the rows divide; none: alike
  std::string hint;  ///< how a wrong shape is mended
};

/// A tensor of the file that may be there, and is the same as one of ours.
struct Twin {
  Pattern file;
  std::string ours, hint;
};

/// An option of the model and the words of it that fit such files.
struct Fitting {
  std::string option;
  std::vector<std::string> values;  ///< as TOML writes them
};

/// A setting that no shape tells, in the config.json beside a file.
struct Setting {
  std::string option;                                      ///< of the model
  std::vector<std::string> keys;                           ///< the first that is there counts: "rope.theta"
  std::vector<std::pair<std::string, std::string>> words;  ///< of the file, and ours
};

/// A key of config.json that changes what is computed, and the values with which it does not.
struct Bound {
  std::string key;
  std::vector<std::string> values;  ///< JSON; none: it has to be absent or null
};

struct Map {
  std::string name, summary;
  std::string model;   ///< type of the model that it is for
  std::string prefix;  ///< names of a file may be without it
  std::vector<Line> lines;
  std::vector<Pattern> ignored;  ///< tensors of the file that hold nothing learned
  std::vector<Pattern> kept;     ///< tensors of ours that no file has: they stay as the model makes them
  std::vector<Twin> twins;
  std::vector<Fitting> options;
  std::vector<Setting> settings;
  std::vector<Bound> bounds;
};

/// Reads a map. Throws ConfigError with file, line and what was expected.
Map parse_map(const std::string& text, const std::string& path);

/// The map of that name, or that in a file, which a name that ends with .toml is. Throws ConfigError, which lists those
/// that there are.
Map find_map(const std::string& name);

/// Returns the names of the maps that there are.
std::vector<std::string> map_names();

}  // namespace convert
