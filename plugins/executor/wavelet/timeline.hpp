// What the waves did when, and the memory that they had, as a table.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <trainyard/error.hpp>

#include "meter.hpp"
#include "pace.hpp"

namespace wavelet {

using namespace trainyard;

class Timeline {
 public:
  void add(const std::vector<Pace::Mark>& marks, const std::vector<Meter::Change>& changes) {
    for (const Pace::Mark& mark : marks)
      rows_.push_back(
          {mark.nanoseconds, mark.wave, mark.pass, words[static_cast<std::size_t>(mark.what)], 0});
    for (const Meter::Change& change : changes)
      rows_.push_back(
          {change.nanoseconds, change.wave, -1, change.bytes > 0 ? "take" : "free", change.bytes});
  }

  /// Rows in the order of time: nanoseconds from the first, wave (0 tick, 1 tock), pass, what happened, and the bytes
  /// that both waves have then. Throws PluginError.
  void write(const std::string& file) {
    std::ranges::stable_sort(rows_, {}, &Row::nanoseconds);
    std::ofstream out(file);
    out << "nanoseconds,wave,pass,what,bytes\n";
    std::int64_t bytes = 0;
    for (const Row& row : rows_) {
      bytes += row.bytes;
      out << row.nanoseconds - rows_.front().nanoseconds << ',' << row.wave << ',';
      if (row.pass >= 0) out << row.pass;
      out << ',' << row.what << ',' << bytes << '\n';
    }
    if (!out.flush()) throw PluginError("cannot write " + file);
  }

 private:
  static constexpr const char* words[] = {"start", "node", "turn", "back", "end"};
  struct Row {
    std::int64_t nanoseconds;
    int wave;
    std::int64_t pass;
    const char* what;
    std::int64_t bytes;
  };
  std::vector<Row> rows_;
};

}  // namespace wavelet
