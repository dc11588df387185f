// Tables in text files: CSV and its kin.
#include <algorithm>
#include <memory>

#include "records.hpp"
#include "table.hpp"

namespace {

using namespace csv;
using datasets::files::Reader;
using trainyard::ConfigError;

struct FileOptions : csv::Options {
  std::string header = "auto";
  std::int64_t skip_rows = 0;
  std::string separator = ",";
};

/// Whether the first record has names. `known`: the training file's columns, where there are some.
bool is_header(const std::vector<std::string>& first, const FileOptions& options, const Columns* known,
               const Records& at) {
  if (options.header != "auto") return options.header == "yes";
  if (known != nullptr && !known->names.empty() &&
      std::any_of(known->features.begin(), known->features.end(), [&](const Column& column) {
        return std::find(first.begin(), first.end(), column.name) != first.end() && !number(column.name);
      }))
    return true;
  const auto numbers =
      std::count_if(first.begin(), first.end(), [](const auto& field) { return number(field).has_value(); });
  const auto texts = std::count_if(first.begin(), first.end(), [&](const auto& field) {
    return !number(field) &&
           std::find(options.na_values.begin(), options.na_values.end(), field) == options.na_values.end();
  });
  if (numbers > 0 && texts > 0)
    at.fail("line " + std::to_string(at.line()) +
            " has both numbers and texts: say header = \"yes\" or header = \"no\"");
  return numbers == 0 && texts > 0;
}

class Lines final : public Source {
 public:
  Lines(const std::string& path, const FileOptions& options, const Columns* known, Reader::Streams streams)
      : file_(path, streams), records_(file_, options.separator[0], options.skip_rows) {
    if (!records_.next(first_)) return;
    count_ = first_.size();
    if (is_header(first_, options, known, records_)) names_ = std::exchange(first_, {});
  }

  bool next(std::vector<Cell>& row) override {
    if (first_.empty()) return records_.next(row);
    row.resize(first_.size());
    for (std::size_t i = 0; i < first_.size(); ++i) row[i].set_text() = first_[i];
    first_.clear();
    return true;
  }

  std::int64_t line() const override { return records_.line(); }
  const char* unit() const override { return "line"; }
  const std::string& path() const override { return file_.path(); }
  std::pair<std::int64_t, std::int64_t> progress() const override { return file_.progress(); }

 private:
  void check_rest() const override { file_.check_rest(); }

  mutable Reader file_;
  Records records_;
  std::vector<std::string> first_;  ///< the first record, where it is a row that nobody has had yet
};

class Csv final : public TableDataset {
 public:
  using Options = FileOptions;
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("csv").version("2.0.0").summary(
        "Tables in text files, of numbers and categories, with a class or a value to predict; plain or .gz.");
    m.option("path", &Options::path, "file; blank lines do not count").required().file();
    describe_table(m);
    m.option("header", &Options::header,
             "whether the first line has names; auto: yes where none of it is a number")
        .one_of({"auto", "yes", "no"});
    m.option("skip_rows", &Options::skip_rows, "lines to leave out at the beginning of the file").min(0);
    m.option("separator", &Options::separator, "one character between fields");
  }
  explicit Csv(const Options& options) : TableDataset(options), options_(options) {}

 private:
  std::unique_ptr<Source> open_source(const std::string& path, const Columns* known,
                                      bool is_new) const override {
    return std::make_unique<Lines>(path, options_, known,
                                   is_new ? Reader::Streams::taken : Reader::Streams::refused);
  }
  void check_format() const override {
    if (options_.separator.size() != 1)
      throw ConfigError("separator must be one character, as in \",\" or \"\\t\"");
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Csv)
