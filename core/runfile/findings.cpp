#include "core/runfile/findings.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

namespace trainyard::config {
namespace {

constexpr std::size_t mark_distance = 256;

bool begins_column(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
}

std::vector<std::size_t> marks_of(const std::string& line) {
  std::vector<std::size_t> marks;
  std::size_t column = 0;
  for (std::size_t byte = 0; byte < line.size(); ++byte)
    if (begins_column(line[byte]) && column++ % mark_distance == 0) marks.push_back(byte);
  return marks;
}

std::vector<SourceLine> split_lines(const std::string& text) {
  std::vector<SourceLine> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    std::string line = text.substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    // Control characters must not reach the reader's terminal, and tabs would shift the caret.
    for (char& c : line)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
    std::vector<std::size_t> marks = marks_of(line);
    lines.push_back({std::move(line), std::move(marks)});
    begin = end + 1;
  }
  return lines;
}

/// Returns the byte at which the 1-based `column` begins. Columns count code points.
std::size_t byte_of(const SourceLine& source, int column) {
  const std::string& line = source.text;
  const std::size_t before = static_cast<std::size_t>(std::max(column, 1)) - 1;
  if (before / mark_distance >= source.marks.size()) return before == 0 ? 0 : line.size();
  std::size_t byte = source.marks[before / mark_distance];
  for (std::size_t i = before % mark_distance; i > 0 && byte < line.size(); --i) {
    ++byte;
    while (byte < line.size() && !begins_column(line[byte])) ++byte;
  }
  return byte;
}

/// Returns the columns of the key or value that begins at `column`: to the closing quote or bracket, else to
/// the end of the bare word.
int token_length(const SourceLine& source, int column) {
  const std::string& line = source.text;
  const std::size_t begin = byte_of(source, column);
  if (begin >= line.size()) return 1;
  std::size_t end = begin;
  const char first = line[begin];
  if (first == '"' || first == '\'') {
    end = begin + 1;
    while (end < line.size() && line[end] != first) end += first == '"' && line[end] == '\\' ? 2 : 1;
    end = std::min(end + 1, line.size());
  } else if (first == '[' || first == '{') {
    int depth = 0;
    for (; end < line.size(); ++end) {
      if (line[end] == '[' || line[end] == '{') ++depth;
      if (line[end] == ']' || line[end] == '}') --depth;
      if (depth == 0) break;
    }
    end = std::min(end + 1, line.size());
    while (end > begin && line[end - 1] == ' ') --end;
  } else {
    end = std::min(line.find_first_of(" =,]}#", begin), line.size());
  }
  int columns = 0;
  for (std::size_t i = begin; i < end; ++i) columns += begins_column(line[i]);
  return std::max(columns, 1);
}

std::string file_of(const Origin& at) {
  return at.file == nullptr ? "" : *at.file;
}

const char* name_of(Finding::Severity severity) {
  return severity == Finding::Severity::error ? "error" : "warning";
}

}  // namespace

void Findings::error(std::string code, const Origin& at, std::string message, std::string hint) {
  add({Finding::Severity::error, std::move(code), at, 0, std::move(message), std::move(hint)});
}

void Findings::warning(std::string code, const Origin& at, std::string message, std::string hint) {
  add({Finding::Severity::warning, std::move(code), at, 0, std::move(message), std::move(hint)});
}

void Findings::add(Finding finding) {
  const auto& [file, line, column] = finding.at;
  if (!keys_.emplace(file_of(finding.at), line, column, finding.code, finding.message).second) return;
  if (const SourceLine* shown = line_of(finding.at)) finding.length = token_length(*shown, column);
  errors_ += finding.severity == Finding::Severity::error;
  findings_.push_back(std::move(finding));
}

bool Findings::mentions(const Origin& at) const {
  if (at.line == 0) return false;
  const auto next = keys_.lower_bound({file_of(at), at.line, at.column, {}, {}});
  return next != keys_.end() && std::get<0>(*next) == file_of(at) && std::get<1>(*next) == at.line &&
         std::get<2>(*next) == at.column;
}

void Findings::add_source(const std::string& file, const std::string& text) {
  sources_.try_emplace(file, Source{sources_.size(), split_lines(text)});
}

const SourceLine* Findings::line_of(const Origin& at) const {
  if (at.file == nullptr || at.line < 1) return nullptr;
  const auto source = sources_.find(*at.file);
  if (source == sources_.end() || static_cast<std::size_t>(at.line) > source->second.lines.size())
    return nullptr;
  return &source->second.lines[static_cast<std::size_t>(at.line) - 1];
}

std::vector<Finding> Findings::list() const {
  std::vector<Finding> sorted = findings_;
  const auto place = [&](const Finding& finding) {
    std::size_t order = sources_.size();
    if (finding.at.file != nullptr)
      if (const auto source = sources_.find(*finding.at.file); source != sources_.end())
        order = source->second.order;
    return std::tuple(order, finding.at.line, finding.at.column);
  };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const Finding& a, const Finding& b) { return place(a) < place(b); });
  return sorted;
}

std::string Findings::block(const Finding& finding, bool color) const {
  const auto paint = [&](const char* code, const std::string& text) {
    return color ? std::string("\x1b[") + code + "m" + text + "\x1b[0m" : text;
  };
  std::string place = finding.at.file == nullptr ? "run" : *finding.at.file;
  if (finding.at.line > 0)
    place += ":" + std::to_string(finding.at.line) + ":" + std::to_string(finding.at.column);
  const bool warning = finding.severity == Finding::Severity::warning;
  std::string out = paint("1", place) + ": " +
                    paint(warning ? "1;33" : "1;31", finding.code + (warning ? " warning:" : "")) + " " +
                    finding.message + "\n";
  const SourceLine* line = line_of(finding.at);
  const std::string margin = "      | ";
  if (line == nullptr) return finding.hint.empty() ? out : out + margin + finding.hint + "\n";
  // Only the part around the place is shown of a very long line.
  constexpr int window = 160;
  const int skipped = finding.at.column > window ? finding.at.column - window / 2 : 0;
  const std::size_t begin = byte_of(*line, skipped + 1);
  const std::string shown = line->text.substr(begin, byte_of(*line, skipped + 1 + window) - begin);
  std::string number = std::to_string(finding.at.line);
  number.insert(0, number.size() < 5 ? 5 - number.size() : 0, ' ');
  out += number + " | " + shown + "\n";
  const int length = std::min(finding.length, window - (finding.at.column - skipped) + 1);
  out += margin + std::string(static_cast<std::size_t>(finding.at.column - skipped - 1), ' ') +
         paint("1;32", std::string(static_cast<std::size_t>(std::max(length, 1)), '^'));
  return out + (finding.hint.empty() ? "\n" : " " + finding.hint + "\n");
}

std::string Findings::text(bool color) const {
  std::string out;
  for (const Finding& finding : list()) out += block(finding, color);
  return out;
}

std::string Findings::json() const {
  nlohmann::ordered_json findings = nlohmann::ordered_json::array();
  for (const Finding& finding : list())
    findings.push_back({{"code", finding.code},
                        {"severity", name_of(finding.severity)},
                        {"file", file_of(finding.at)},
                        {"line", finding.at.line},
                        {"column", finding.at.column},
                        {"length", finding.length},
                        {"message", finding.message},
                        {"hint", finding.hint}});
  const nlohmann::ordered_json report = {
      {"errors", errors_}, {"warnings", findings_.size() - errors_}, {"findings", std::move(findings)}};
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace trainyard::config
