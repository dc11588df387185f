// Clicks on advertisements in the format of Criteo's data sets (Kaggle 2014, Terabyte): label, 13 integers,
// 26 hashes of categories; any of them but the label may be empty. What becomes of them is as in the DLRM
// (Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems", arXiv
// 1906.00091, its data_utils.py): log(1 + x) of the numbers, where one that is empty or negative counts as 0,
// and hashes modulo the rows of a table; row 0 is kept for those that are empty.
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include <ATen/ops/empty.h>

#include "clicks.hpp"
#include "files.hpp"
#include "parsed.hpp"

namespace {

using namespace trainyard;
using datasets::parsed;
using datasets::shown;
using datasets::files::Reader;

constexpr std::size_t numbers = 13, categories = 26;

/// Where a line has what: fields[label], fields[number[0]], ...
struct Columns {
  std::size_t label = 0, count = 1 + numbers + categories;
  std::array<std::size_t, numbers> number{};
  std::array<std::size_t, categories> category{};

  Columns() {
    std::iota(number.begin(), number.end(), std::size_t{1});
    std::iota(category.begin(), category.end(), 1 + numbers);
  }
};

class Criteo final : public Dataset {
 public:
  struct Options {
    std::string path;
    std::vector<std::int64_t> rows;
    std::string layout = "tsv";
    std::int64_t skip = 0;
    std::int64_t limit = 0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("criteo").version("1.0.0").summary(
        "Clicks with 13 numbers and 26 categories, as Criteo publishes them; plain or .gz.");
    m.option("path", &Options::path, "file; blank lines do not count").required().file();
    m.option("rows", &Options::rows,
             "of the table that a category indexes: one number for all, or one for each of the 26; row 0 is "
             "that of empty fields, a hash h has row 1 + h % (rows - 1)")
        .required()
        .range(2, std::numeric_limits<std::int32_t>::max());
    m.option("layout", &Options::layout,
             "tsv: tabs between 40 fields, as published; csv: commas, and a header that names label, I1 to "
             "I13 and C1 to C26, in any order")
        .one_of({"tsv", "csv"});
    m.option("skip", &Options::skip, "samples to leave out at the beginning of the file").min(0);
    m.option("limit", &Options::limit, "samples to take after these; 0: all").min(0);
  }
  explicit Criteo(const Options& options) : options_(options) {}

  void open(const std::string&) override {
    if (options_.rows.size() != 1 && options_.rows.size() != categories)
      throw ConfigError("rows has " + std::to_string(options_.rows.size()) +
                        " numbers: give one for all tables, or one for each of the 26");
    for (std::size_t t = 0; t < categories; ++t)
      hashed_rows_[t] = static_cast<std::uint32_t>(options_.rows[options_.rows.size() == 1 ? 0 : t] - 1);
    std::int64_t sample = 0;
    const std::int64_t end =
        options_.limit > 0 && options_.limit <= most - options_.skip ? options_.skip + options_.limit : most;
    each_line([&](const Fields& fields, const Columns& columns, const auto& fail) {
      if (sample++ >= options_.skip) add(fields, columns, fail);
      return sample < end;
    });
    if (labels_.empty())
      throw DataError(options_.path + ": " +
                      (sample == 0 ? "there is no sample"
                                   : "skip = " + std::to_string(options_.skip) + " leaves none of its " +
                                         std::to_string(sample) + " samples"));
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }

  BatchSchema schema() const override {
    return datasets::click_schema(numbers, categories,
                                  *std::max_element(options_.rows.begin(), options_.rows.end()));
  }

  Batch read(std::span<const std::int64_t> indices, const ReadContext&) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    Batch batch;
    batch.inputs = {at::empty({count, std::int64_t{numbers}}, at::kFloat),
                    at::empty({count, std::int64_t{categories}}, at::kLong)};
    batch.target = at::empty({count}, at::kLong);
    auto* feature = batch.inputs[0].mutable_data_ptr<float>();
    auto* id = batch.inputs[1].mutable_data_ptr<std::int64_t>();
    auto* label = batch.target.mutable_data_ptr<std::int64_t>();
    for (const std::int64_t index : indices) {
      const auto sample = static_cast<std::size_t>(index);
      feature = std::copy_n(features_.data() + sample * numbers, numbers, feature);
      id = std::copy_n(ids_.data() + sample * categories, categories, id);
      *label++ = labels_[sample];
    }
    return batch;
  }

  std::vector<std::int64_t> labels() const override { return {labels_.begin(), labels_.end()}; }

 private:
  using Fields = std::vector<std::string_view>;
  static constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

  /// Calls line(fields, columns, fail) for each line that holds a sample until that says false, where
  /// fail(column, message) throws DataError with the place.
  template <class Line>
  void each_line(Line&& take) const {
    const bool header = options_.layout == "csv";
    Reader file(options_.path);
    std::optional<Columns> columns;
    if (!header) columns.emplace();
    std::string line;
    Fields fields;
    for (std::int64_t number = 1; file.line(line); ++number) {
      if (line.empty()) continue;
      const auto fail_line = [&](const std::string& message) {
        file.check_rest();
        throw DataError(options_.path + ":" + std::to_string(number) + ": " + message);
      };
      datasets::split(line, header ? ',' : '\t', fields);
      if (!columns) {
        columns = find_columns(fields, fail_line);
        continue;
      }
      if (fields.size() != columns->count)
        fail_line(
            "found " + std::to_string(fields.size()) + " fields, expected " + std::to_string(columns->count) +
            (header ? " as in the header" : " with tabs between them: set layout = \"csv\" for commas"));
      const bool more = take(fields, *columns, [&](std::size_t column, const std::string& message) {
        fail_line("field " + std::to_string(column + 1) + ": " + message);
      });
      if (!more) return;
    }
  }

  template <class Fail>
  static Columns find_columns(const Fields& fields, Fail&& fail) {
    const auto find = [&](const std::string& name) {
      const auto found = std::find(fields.begin(), fields.end(), name);
      return static_cast<std::size_t>(found - fields.begin());
    };
    const auto require = [&](const std::string& name) {
      const std::size_t column = find(name);
      if (column == fields.size()) fail("the header has no column \"" + name + "\"");
      return column;
    };
    Columns columns;
    columns.count = fields.size();
    columns.label = find("label") < fields.size() ? find("label") : require("Label");
    for (std::size_t i = 0; i < numbers; ++i) columns.number[i] = require("I" + std::to_string(i + 1));
    for (std::size_t t = 0; t < categories; ++t) columns.category[t] = require("C" + std::to_string(t + 1));
    return columns;
  }

  template <class Fail>
  void add(const Fields& fields, const Columns& columns, Fail&& fail) {
    const std::string_view label = fields[columns.label];
    if (label != "0" && label != "1") fail(columns.label, "the label is " + shown(label) + ", not 0 or 1");
    for (const std::size_t column : columns.number) {
      const std::string_view text = fields[column];
      const std::optional<double> value = text.empty() ? 0.0 : parsed<double>(text);
      if (!value || !std::isfinite(*value)) fail(column, shown(text) + " is not a number");
      features_.push_back(static_cast<float>(std::log1p(std::max(*value, 0.0))));
    }
    for (std::size_t t = 0; t < categories; ++t) {
      const std::string_view text = fields[columns.category[t]];
      const std::optional<std::uint32_t> hash = text.empty() ? 0 : parsed<std::uint32_t>(text, 16);
      if (!hash) fail(columns.category[t], shown(text) + " is not a hash of up to 8 hexadecimal digits");
      ids_.push_back(text.empty() ? 0 : static_cast<std::int32_t>(1 + *hash % hashed_rows_[t]));
    }
    labels_.push_back(label == "1");
  }

  Options options_;
  std::array<std::uint32_t, categories> hashed_rows_{};  ///< of each table, without row 0
  std::vector<float> features_;                          ///< [size, 13]
  std::vector<std::int32_t> ids_;                        ///< [size, 26]
  std::vector<std::uint8_t> labels_;
};

}  // namespace

TRAINYARD_PLUGIN(Criteo)
