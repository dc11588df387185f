// Tables of typed columns.
#include <memory>

#include "../csv/table.hpp"
#include "arrow_source.hpp"

namespace {

class Parquet final : public csv::TableDataset {
 public:
  using Options = csv::Options;
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("parquet").version("1.0.0").summary(
        "Tables in Parquet and Arrow files, of numbers and categories, with a class or a value to predict.");
    m.option("path", &Options::path,
             "file, or a folder: of Parquet files, or one that Hugging Face's datasets saved")
        .required()
        .file();
    csv::describe_table(m);
  }
  explicit Parquet(const Options& options) : TableDataset(options) {}

 private:
  std::unique_ptr<csv::Source> open_source(const std::string& path, const csv::Columns*,
                                           bool) const override {
    return parquet_table::open(path);
  }
};

}  // namespace

TRAINYARD_PLUGIN(Parquet)
