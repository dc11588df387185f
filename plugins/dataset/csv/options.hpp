// What a run file says of a table, whatever the format of its file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace csv {

struct Options {
  std::string path;
  std::string target = "-1";
  std::string task = "classification";
  std::int64_t classes = 0;
  std::vector<std::string> labels;
  std::vector<std::string> columns, exclude, categorical;
  std::int64_t max_levels = 256;
  std::string missing = "error";
  double constant = 0.0;
  bool indicator = false;
  std::vector<std::string> na_values = {"", "NA", "N/A", "NaN", "nan", "NULL", "null", "?"};
  std::vector<std::int64_t> shape;
  double scale = 1.0;
  std::vector<double> mean, std;
  bool standardize = false;
  bool standardize_target = false;
  std::string standardize_with;
  std::vector<double> fraction = {0.0, 1.0};
  std::int64_t split_seed = 0;

  bool classification() const { return task == "classification"; }
};

}  // namespace csv
