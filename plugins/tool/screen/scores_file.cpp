#include "scores_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <trainyard/error.hpp>

#include "lib/escapes.hpp"
#include "lib/new_file.hpp"
#include "lib/printed.hpp"

namespace screen {

namespace {

/// Returns the fields behind the number of a row that was judged.
std::string judged(const Scored& scored, std::size_t i) {
  std::string text = trainyard::lib::shortest(scored.combined[i]) + (scored.is_outlier(i) ? ",1," : ",0,") +
                     trainyard::lib::shortest(scored.weight(i));
  for (const std::vector<double>& scores : scored.standard) text += ',' + trainyard::lib::shortest(scores[i]);
  return text;
}

}  // namespace

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
  const bool all = scored.rows.empty();
  const std::int64_t count = all ? std::ssize(scored.combined) : scored.all;
  std::size_t next = 0;  // of the rows that were judged
  for (std::int64_t row = 0; row < count; ++row) {
    text += std::to_string(row + 1) + ',';
    if (all || (next < scored.rows.size() && scored.rows[next] == row))
      text += judged(scored, next++);
    else
      text += ",0,1" + std::string(scored.standard.size(), ',');
    text += '\n';
    if (text.size() < (std::size_t{1} << 20) && row + 1 < count) continue;
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    text.clear();
  }
  file.close();
  if (!file) fail(errno);
  if (const auto failure = made.put_in_place()) fail(failure->reason);
}

}  // namespace screen
