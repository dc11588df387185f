#include "core/runfile/suggest.hpp"

#include <algorithm>
#include <span>

#include "lib/words.hpp"

namespace trainyard::config {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr std::size_t longest = 64;  // longer words are no slip, and the table is quadratic
  constexpr std::size_t most = 300;    // candidates compared, of lists of thousands
  if (word.empty() || word.size() > longest) return {};
  const std::string typed = lib::lower_case(std::string(word));
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : std::span(candidates).first(std::min(candidates.size(), most))) {
    const std::size_t lengths =
        candidate.size() > word.size() ? candidate.size() - word.size() : word.size() - candidate.size();
    if (candidate.size() > longest || lengths >= best_distance) continue;  // at least that far away
    const std::size_t distance = edit_distance(typed, lib::lower_case(candidate));
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates,
                       std::string_view label) {
  constexpr std::size_t most = 50;  // words that a reader may want to see
  const std::string near = nearest(word, candidates);
  std::string hint = near.empty() ? "" : "did you mean `" + near + "`?   ";
  hint += std::string(label) + ": ";
  if (candidates.size() <= most) return hint + (candidates.empty() ? "none" : lib::join(candidates));
  return hint + lib::join(std::span(candidates).first(most)) + " and " +
         std::to_string(candidates.size() - most) + " more";
}

}  // namespace trainyard::config
