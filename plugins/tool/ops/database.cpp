#include "database.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>

#include <trainyard/error.hpp>

#include "lib/printed.hpp"

namespace ops {
namespace {

using trainyard::DataError;
using trainyard::lib::shortest;

constexpr const char* header =
    "sweep,op,batch,size,cin,cout,kernel,stride,groups,type,phase,library,threads,pages,cache,"
    "min_us,lower_us,median_us,cpu_share,rounds,macs,bytes,machine";
constexpr std::size_t columns = 23;

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
  return cells;
}

/// Reads the cells of a line in their order.
class Cells {
 public:
  Cells(const std::vector<std::string>& cells, std::string place) : cells_(cells), place_(std::move(place)) {}
  const std::string& text() { return cells_[next_++]; }
  template <class Number>
  Number number() {
    const std::string& cell = text();
    Number value{};
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc() || end != cell.data() + cell.size())
      throw DataError(place_ + ": column " + std::to_string(next_) + " is \"" + cell +
                      "\": expected a number");
    return value;
  }

 private:
  const std::vector<std::string>& cells_;
  std::string place_;
  std::size_t next_ = 0;
};

Row row_of(const std::vector<std::string>& line, const std::string& place) {
  Cells cells(line, place);
  Row row;
  row.sweep = cells.text();
  Operator& p = row.point;
  p.op = cells.text();
  for (std::int64_t* each : {&p.batch, &p.size, &p.in, &p.out, &p.kernel, &p.stride, &p.groups})
    *each = cells.number<std::int64_t>();
  p.type = cells.text();
  p.phase = cells.text();
  p.library = cells.text();
  p.threads = cells.number<std::int64_t>();
  row.conditions = {.keeps_pages = cells.text() == "kept", .flushes = cells.text() == "cold"};
  for (double* each : {&row.timing.least, &row.timing.lower, &row.timing.median})
    *each = 1e-6 * cells.number<double>();
  row.timing.share = cells.number<double>();
  row.rounds = cells.number<int>();
  row.work.multiply_adds = cells.number<double>();
  row.work.bytes = cells.number<double>();
  if (row.timing.least <= 0.0)
    throw DataError(place + ": a time of " + line[15] + " us: expected more than 0");
  return row;
}

std::string line_of(const Row& row, const std::string& machine) {
  const Operator& p = row.point;
  std::string line = row.sweep + "," + p.op;
  for (const std::int64_t each : {p.batch, p.size, p.in, p.out, p.kernel, p.stride, p.groups})
    line += "," + std::to_string(each);
  line += "," + p.type + "," + p.phase + "," + p.library + "," + std::to_string(p.threads);
  line += row.conditions.keeps_pages ? ",kept" : ",given_back";
  line += row.conditions.flushes ? ",cold" : ",hot";
  for (const double each : {row.timing.least, row.timing.lower, row.timing.median})
    line += trainyard::lib::printed(",%.7g", 1e6 * each);
  line += "," + trainyard::lib::printed("%.3f", row.timing.share) + "," + std::to_string(row.rounds);
  return line + "," + shortest(row.work.multiply_adds) + "," + shortest(row.work.bytes) + "," + machine;
}

}  // namespace

void Database::read(const std::string& text, const std::string& path) {
  std::stringstream lines(text);
  std::string line;
  bool has_header = false;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string place = path + ":" + std::to_string(number);
    if (line.empty()) continue;
    if (line[0] == '#') {
      if (line.find("machine " + machine_.id) == line.npos && others_known_.insert(line).second)
        other_machines_.push_back(line);
      continue;
    }
    if (has_header && line == header) continue;  // where a file was put behind another one
    if (!has_header) {
      if (line != header)
        throw DataError(place + ": expected the columns " + header +
                        " of a database of this tool, and the file has " + line.substr(0, 80));
      has_header = true;
      continue;
    }
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() != columns)
      throw DataError(place + ": has " + std::to_string(cells.size()) + " cells: expected " +
                      std::to_string(columns));
    if (cells.back() == machine_.id)
      add(row_of(cells, place));
    else if (others_known_.insert(line).second)
      others_.push_back(line);
  }
}

void Database::add(Row row) {
  const auto [place, is_new] = places_.emplace(Key(row.sweep, row.point, row.conditions), rows_.size());
  if (is_new)
    rows_.push_back(std::move(row));
  else
    rows_[place->second] = std::move(row);
}

const Row* Database::find(const std::string& sweep, const Operator& point,
                          const Conditions& conditions) const {
  if (!sweep.empty()) {
    const auto found = places_.find(Key(sweep, point, conditions));
    return found == places_.end() ? nullptr : &rows_[found->second];
  }
  const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) {
    return row.point == point && row.conditions == conditions;
  });
  return found == rows_.end() ? nullptr : &*found;
}

std::vector<const Row*> Database::of_sweep(const std::string& sweep) const {
  std::vector<const Row*> found;
  for (const Row& row : rows_)
    if (row.sweep == sweep) found.push_back(&row);
  return found;
}

std::string Database::text() const {
  std::string text;
  for (const std::string& each : other_machines_) text += each + "\n";
  text += "# machine " + machine_.id + ":";
  for (const auto& [name, value] : machine_.facts) text += " " + name + "=" + value + ";";
  text += "\n" + std::string(header) + "\n";
  for (const std::string& each : others_) text += each + "\n";
  for (const Row& row : rows_) text += line_of(row, machine_.id) + "\n";
  return text;
}

}  // namespace ops
