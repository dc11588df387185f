#include "core/check/report.hpp"

#include <algorithm>
#include <array>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <ostream>

#include "lib/escapes.hpp"

namespace trainyard::check {
namespace {

std::string_view name_of(Verdict verdict) {
  return verdict_names[static_cast<std::size_t>(verdict)];
}

std::string_view sentence_of(std::string_view test) {
  const auto* row = std::ranges::find(tests, test, &TestRow::name);
  return row == std::end(tests) ? std::string_view() : row->sentence;
}

std::ptrdiff_t count(const Report& report, Verdict verdict) {
  return std::ranges::count(report.results, verdict, &Result::verdict);
}

/// Indents lines below the first to stand under it.
std::string indented(const std::string& text, std::size_t by) {
  std::string lines;
  for (const char letter : text) {
    lines += letter;
    if (letter == '\n') lines.append(by, ' ');
  }
  return lines;
}

/// Escapes text for XML; characters that XML cannot hold are replaced.
std::string escaped(std::string_view text) {
  std::string xml = lib::escaped(text);
  std::ranges::replace_if(
      xml, [](unsigned char letter) { return letter < ' ' && letter != '\n'; }, '?');
  return xml;
}

void print_case(const Report& report, const Result& result, std::ostream& out) {
  out << "    <testcase classname=\"" << escaped(report.plugin) << "\" name=\"" << escaped(result.test)
      << ": " << escaped(sentence_of(result.test)) << "\" time=\"" << result.seconds << "\">";
  const std::string what = escaped(result.what);
  switch (result.verdict) {
    case Verdict::pass: break;
    case Verdict::fail: out << "<failure message=\"" << what << "\"/>"; break;
    case Verdict::crash: out << "<error message=\"" << what << "\"/>"; break;
    case Verdict::skip: out << "<skipped message=\"" << what << "\"/>"; break;
    case Verdict::warn: out << "<system-out>warning: " << what << "</system-out>"; break;
  }
  out << "</testcase>\n";
}

}  // namespace

void print_line(const Result& result, std::ostream& out) {
  constexpr int widest = 19, verdicts = 7, indent = 9;
  out << "  " << std::left << std::setw(verdicts) << name_of(result.verdict) << std::setw(widest + 2)
      << result.test << sentence_of(result.test) << '\n';
  if (!result.what.empty()) out << std::string(indent, ' ') << indented(result.what, indent) << '\n';
  out << std::flush;
}

void print_counts(const Report& report, std::ostream& out) {
  constexpr std::array words = {std::pair(Verdict::pass, " passed"), std::pair(Verdict::fail, " failed"),
                                std::pair(Verdict::crash, " crashed"), std::pair(Verdict::warn, " warned"),
                                std::pair(Verdict::skip, " skipped")};
  std::string text;
  for (const auto& [verdict, word] : words)
    if (const auto found = count(report, verdict); found > 0 || verdict == Verdict::pass)
      text += (text.empty() ? "" : ", ") + std::to_string(found) + word;
  out << report.plugin << ": " << text << '\n' << std::flush;
}

void print_tests(std::ostream& out) {
  constexpr int widest = 19;
  for (const TestRow& test : tests)
    out << std::left << std::setw(widest + 2) << test.name << test.sentence << '\n';
}

void print_json(const std::vector<Report>& reports, std::ostream& out) {
  using Json = nlohmann::ordered_json;
  Json all = Json::array();
  for (const Report& report : reports) {
    Json results = Json::array();
    for (const Result& result : report.results)
      results.push_back({{"name", result.test},
                         {"sentence", sentence_of(result.test)},
                         {"verdict", name_of(result.verdict)},
                         {"what", result.what},
                         {"seconds", result.seconds}});
    all.push_back({{"plugin", report.plugin},
                   {"path", report.path},
                   {"passed", report.passed()},
                   {"tests", std::move(results)}});
  }
  out << all.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

void print_junit(const std::vector<Report>& reports, std::ostream& out) {
  out << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  for (const Report& report : reports) {
    double seconds = 0.0;
    for (const Result& result : report.results) seconds += result.seconds;
    out << "  <testsuite name=\"" << escaped(report.plugin) << "\" file=\"" << escaped(report.path)
        << "\" tests=\"" << report.results.size() << "\" failures=\"" << count(report, Verdict::fail)
        << "\" errors=\"" << count(report, Verdict::crash) << "\" skipped=\"" << count(report, Verdict::skip)
        << "\" time=\"" << seconds << "\">\n";
    for (const Result& result : report.results) print_case(report, result, out);
    out << "  </testsuite>\n";
  }
  out << "</testsuites>\n";
}

}  // namespace trainyard::check
