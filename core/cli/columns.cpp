#include "core/cli/columns.hpp"

#include <algorithm>

namespace trainyard::cli {

void print_columns(const std::vector<std::vector<std::string>>& rows, const std::string& indent,
                   std::ostream& out) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line = indent;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + 2, ' ');
    }
    std::replace(line.begin(), line.end(), '\n', ' ');  // help texts may have several lines
    out << line.erase(line.find_last_not_of(' ') + 1) << '\n';
  }
}

}  // namespace trainyard::cli
