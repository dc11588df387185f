#include "records.hpp"

#include <algorithm>

#include "cell.hpp"
#include "lib/words.hpp"

namespace csv {
namespace {

std::string& text_of(std::string& field) {
  return field;
}
std::string& text_of(Cell& field) {
  return field.set_text();
}

}  // namespace

void Records::fail(const std::string& message) const {
  file_.check_rest();
  throw trainyard::DataError(path() + ":" + std::to_string(begin_) + ": " + message);
}

bool Records::read_line() {
  if (!file_.line(line_)) return false;
  if (++at_ == 1 && line_.starts_with("\xef\xbb\xbf")) line_.erase(0, 3);
  return true;
}

template <class Field>
bool Records::next(std::vector<Field>& fields) {
  do
    if (!read_line()) return false;
  while (at_ <= skip_ || trainyard::lib::trimmed(line_).empty());
  begin_ = at_;
  std::size_t count = 0;
  for (std::size_t at = 0;; ++at) {
    if (count == fields.size()) fields.emplace_back();
    std::string& field = text_of(fields[count++]);
    std::size_t end = std::min(line_.find(separator_, at), line_.size());
    const std::string_view plain = trainyard::lib::trimmed(std::string_view(line_).substr(at, end - at));
    field.assign(plain);
    if (plain.starts_with('"')) {
      const std::size_t behind = quoted(line_.find('"', at) + 1, field);
      end = std::min(line_.find(separator_, behind), line_.size());
      if (!trainyard::lib::trimmed(std::string_view(line_).substr(behind, end - behind)).empty())
        fail("field " + std::to_string(count) +
             " goes on behind its closing quote: a quote within a field in quotes has to be doubled");
    }
    if (end == line_.size()) break;
    at = end;
  }
  fields.resize(count);
  if (count_ == 0) count_ = count;
  if (count == count_) return true;
  fail("found " + std::to_string(count) + " fields, expected " + std::to_string(count_) +
       " as in the first line: " +
       (count > count_ ? "a field that holds the separator has to stand in quotes"
                       : "the row is cut off, or an earlier quote is not closed"));
}

template bool Records::next(std::vector<std::string>&);
template bool Records::next(std::vector<Cell>&);

std::size_t Records::quoted(std::size_t from, std::string& field) {
  field.clear();
  for (;;) {
    const std::size_t quote = line_.find('"', from);
    if (quote == std::string::npos) {
      field.append(line_, from).push_back('\n');
      if (!read_line()) fail("a quote is not closed: the file ends within the field that it opens");
      from = 0;
      continue;
    }
    field.append(line_, from, quote - from);
    from = quote + 1;
    if (from == line_.size() || line_[from] != '"') return from;
    field += '"';
    ++from;
  }
}

}  // namespace csv
