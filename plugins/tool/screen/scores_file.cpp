#include "scores_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <trainyard/error.hpp>

#include "lib/escapes.hpp"
#include "lib/new_file.hpp"
#include "lib/printed.hpp"

namespace screen {

void write_scores(const std::string& path, const Scored& scored) {
  const auto fail = [&](int reason) {
    throw trainyard::DataError(path + " cannot be written: " + std::strerror(reason));
  };
  trainyard::lib::NewFile made(path);
  std::ofstream file(made.temporary(), std::ios::binary);
  if (!file) fail(errno);
  std::string text = "row,score,outlier,weight";
  for (const std::string& name : scored.detectors) text += ',' + trainyard::lib::csv_field(name, ",\"\r\n");
  text += '\n';
  for (std::size_t i = 0; i < scored.combined.size(); ++i) {
    text += std::to_string(i + 1) + ',' + trainyard::lib::shortest(scored.combined[i]) +
            (scored.is_outlier(i) ? ",1," : ",0,") + trainyard::lib::shortest(scored.weight(i));
    for (const std::vector<double>& scores : scored.standard)
      text += ',' + trainyard::lib::shortest(scores[i]);
    text += '\n';
    if (text.size() < (std::size_t{1} << 20) && i + 1 < scored.combined.size()) continue;
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    text.clear();
  }
  file.close();
  if (!file) fail(errno);
  if (const auto failure = made.put_in_place()) fail(failure->reason);
}

}  // namespace screen
