#include "catalogue.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <map>

#include <trainyard/error.hpp>

#include "lib/printed.hpp"

namespace srifty {
namespace {

using trainyard::DataError;

/// A column with its unit, and the largest number of that unit that there is.
struct Column {
  std::string_view name, meaning;
  double most;  ///< 0: text
  bool required;
};

constexpr Column columns[] = {
    {"type", "the name of the machine type", 0, true},
    {"accelerator", "the device that a profile is of", 0, true},
    {"count", "accelerators of a machine", 1024, true},
    {"price_usd_h", "USD an hour", 10'000, true},
    {"net_gbit_s", "Gbit/s between machines", 6400, true},
    {"spot_usd_h", "USD an hour", 10'000, false},
    {"gpu_mem_gib", "GiB of an accelerator", 4096, false},
    {"intra_gbyte_s", "GB/s between accelerators of a machine", 10'000, false},
    {"link", "the name of measured links", 0, false},
    {"region", "", 0, false},
    {"zone", "", 0, false},
    {"as_of", "the date of the row", 0, false},
    {"source", "where the row is from", 0, false},
};

std::string column_names() {
  std::string names;
  for (const Column& each : columns) names += (names.empty() ? "" : ", ") + std::string(each.name);
  return names;
}

const Column* column_of(std::string_view name) {
  const auto* const found = std::find_if(std::begin(columns), std::end(columns),
                                         [&](const Column& each) { return each.name == name; });
  return found == std::end(columns) ? nullptr : found;
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find(',', begin), line.size());
    cells.emplace_back(trimmed(line.substr(begin, end - begin)));
    begin = end + 1;
  }
  return cells;
}

class Reader {
 public:
  explicit Reader(const std::string& path) { catalogue_.path = path; }

  Catalogue read(std::string_view text) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      ++line_;
      take(trimmed(text.substr(begin, end - begin)));
      begin = end + 1;
    }
    if (catalogue_.machines.empty())
      throw DataError(catalogue_.path + ": has no rows: expected a header with " + column_names() +
                      " and a machine a line below it");
    return std::move(catalogue_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(catalogue_.path + ":" + std::to_string(line_) + ": " + what);
  }

  void take(std::string_view line) {
    if (line.empty()) return;
    if (line.front() == '#') return take_comment(trimmed(line.substr(1)));
    if (line.find('"') != std::string_view::npos)
      fail("has a quotation mark: cells are without, and have no comma");
    const std::vector<std::string> cells = cells_of(line);
    if (header_.empty()) return take_header(cells);
    if (cells.size() != header_.size())
      fail("has " + std::to_string(cells.size()) + " cells, and the header has " +
           std::to_string(header_.size()));
    std::map<std::string_view, std::string> row;
    for (std::size_t i = 0; i < cells.size(); ++i) row[header_[i]->name] = cells[i];
    catalogue_.machines.push_back(machine_of(row));
  }

  void take_comment(std::string_view text) {
    for (const auto& [key, value] :
         {std::pair{"as_of:", &catalogue_.as_of}, std::pair{"source:", &catalogue_.source}})
      if (text.starts_with(key)) *value = trimmed(text.substr(std::string_view(key).size()));
    if (text.starts_with("as_of:")) require_date(catalogue_.as_of);
  }

  void require_date(const std::string& date) const {
    if (!days_between(date, date)) fail("as_of is \"" + date + "\": expected a date, as 2026-11-27");
  }

  void take_header(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const Column* const column = column_of(name);
      if (column == nullptr)
        fail("has a column \"" + name + "\", which is unknown: units are part of the names, which are " +
             column_names());
      if (std::find(header_.begin(), header_.end(), column) != header_.end())
        fail("has the column \"" + name + "\" twice");
      header_.push_back(column);
    }
    for (const Column& each : columns)
      if (each.required && std::find(header_.begin(), header_.end(), &each) == header_.end())
        fail("has no column " + std::string(each.name) + ", " + std::string(each.meaning));
  }

  using Row = std::map<std::string_view, std::string>;

  /// Returns the number of a cell; nothing where it is empty or not there.
  std::optional<double> number(const Row& row, std::string_view name) const {
    const auto found = row.find(name);
    if (found == row.end() || found->second.empty()) return std::nullopt;
    const Column& column = *column_of(name);
    const std::string& text = found->second;
    double value = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const std::string expected = ": expected a number, " + std::string(column.meaning);
    if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
      fail(std::string(name) + " is \"" + text + "\"" + expected);
    if (value < 0.0) fail(std::string(name) + " is " + text + ", below 0" + expected);
    if (value > column.most)
      fail(std::string(name) + " is " + text + ", more than there is (" + number_text(column.most) +
           "): is it in another unit? Expected are " + std::string(column.meaning));
    return value;
  }

  static std::string number_text(double value) { return trainyard::lib::printed("%g", value); }

  double required(const Row& row, std::string_view name) const {
    const std::optional<double> value = number(row, name);
    if (!value || *value == 0.0)
      fail(std::string(name) + " is " + (value ? "0" : "empty") + ": expected " +
           std::string(column_of(name)->meaning));
    return *value;
  }

  std::string text(const Row& row, std::string_view name) const {
    const auto found = row.find(name);
    return found == row.end() ? std::string() : found->second;
  }

  /// A price of 0 is how public tables say that a machine is not offered.
  std::optional<double> price(const Row& row, std::string_view name) const {
    const std::optional<double> value = number(row, name);
    return value && *value > 0.0 ? value : std::nullopt;
  }

  Machine machine_of(const Row& row) const {
    Machine made;
    made.type = text(row, "type");
    made.accelerator = text(row, "accelerator");
    if (made.type.empty() || made.accelerator.empty()) fail("has no type or no accelerator");
    const double count = required(row, "count");
    if (count != std::floor(count)) fail("count is " + text(row, "count") + ": expected a whole number");
    made.count = static_cast<int>(count);
    made.price = price(row, "price_usd_h");
    made.spot_price = price(row, "spot_usd_h");
    made.network = required(row, "net_gbit_s") * 1e9 / 8.0;
    made.inside = number(row, "intra_gbyte_s").value_or(0.0) * 1e9;
    made.memory_bytes = number(row, "gpu_mem_gib").value_or(0.0) * 1024.0 * 1024.0 * 1024.0;
    made.link = text(row, "link");
    made.region = text(row, "region");
    made.zone = text(row, "zone");
    made.as_of = text(row, "as_of").empty() ? catalogue_.as_of : text(row, "as_of");
    made.source = text(row, "source").empty() ? catalogue_.source : text(row, "source");
    if (made.as_of.empty() || made.source.empty())
      fail("has no date or no source: begin the file with \"# as_of: 2026-11-27\" and \"# source: ...\"");
    require_date(made.as_of);
    return made;
  }

  Catalogue catalogue_;
  std::vector<const Column*> header_;
  int line_ = 0;
};

std::optional<std::chrono::sys_days> date_of(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return std::nullopt;
  int year = 0;
  unsigned month = 0, day = 0;
  const auto part = [&](std::size_t at, std::size_t size, auto& number) {
    const char* const end = text.data() + at + size;
    return std::from_chars(text.data() + at, end, number).ptr == end;
  };
  if (!part(0, 4, year) || !part(5, 2, month) || !part(8, 2, day)) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month),
                                         std::chrono::day(day)};
  return date.ok() ? std::optional(std::chrono::sys_days(date)) : std::nullopt;
}

}  // namespace

Catalogue read_catalogue(const std::string& text, const std::string& path) {
  return Reader(path).read(text);
}

std::optional<std::int64_t> days_between(std::string_view from, std::string_view to) {
  const auto first = date_of(from), second = date_of(to);
  if (!first || !second) return std::nullopt;
  return (*second - *first).count();
}

std::string today() {
  const std::chrono::year_month_day date(
      std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()));
  return trainyard::lib::printed("%04d-%02u-%02u", static_cast<int>(date.year()),
                                 static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
}

}  // namespace srifty
