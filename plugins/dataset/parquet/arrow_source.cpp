#include "arrow_source.hpp"

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <arrow/util/decimal.h>
#include <arrow/util/float16.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

namespace parquet_table {
namespace {

namespace fs = std::filesystem;
using csv::Cell;
using trainyard::DataError;

/// What Arrow returns. It throws as well, deep within Parquet.
template <class Make>
auto of(const std::string& path, Make&& make) {
  try {
    auto result = make();
    if (!result.ok()) throw DataError(path + ": " + result.status().message());
    return std::move(result).ValueUnsafe();
  } catch (const DataError&) {
    throw;
  } catch (const std::exception& error) {
    throw DataError(path + ": " + error.what());
  }
}

/// Whether cells of the type can be filled.
bool is_readable(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::DICTIONARY:
      return is_readable(*static_cast<const arrow::DictionaryType&>(type).value_type());
    case arrow::Type::EXTENSION:
      return is_readable(*static_cast<const arrow::ExtensionType&>(type).storage_type());
    case arrow::Type::NA:
    case arrow::Type::BOOL:
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::STRING_VIEW:
    case arrow::Type::DECIMAL128:
    case arrow::Type::DECIMAL256: return true;
    default: return arrow::is_primitive(type.id());  // numbers, dates and times
  }
}

/// An integer beyond 2^53 as text, for as a number it would be another one.
template <class Integer>
void fill_integer(Cell& cell, Integer value) {
  constexpr auto exact = Integer{1} << 53;
  bool fits = value <= exact;
  if constexpr (std::is_signed_v<Integer>) fits = fits && value >= -exact;
  if (fits)
    cell.set_number(static_cast<double>(value));
  else
    cell.set_text() = std::to_string(value);
}

/// What is not a number is the text "nan", which na_values have.
void fill_real(Cell& cell, double value) {
  if (std::isnan(value))
    cell.set_text() = "nan";
  else
    cell.set_number(value);
}

void fill(Cell& cell, const arrow::Array& array, std::int64_t row) {
  if (array.IsNull(row)) return cell.set_gap();
  const auto value = [&]<class Array>(const Array*) { return static_cast<const Array&>(array).Value(row); };
  const auto small = [&]<class Array>(const Array* type) {
    cell.set_number(static_cast<double>(value(type)));
  };
  const auto text = [&]<class Array>(const Array*) {
    cell.set_text().assign(static_cast<const Array&>(array).GetView(row));
  };
  using namespace arrow;
  switch (array.type_id()) {
    case Type::BOOL: return small(static_cast<const BooleanArray*>(nullptr));
    case Type::INT8: return small(static_cast<const Int8Array*>(nullptr));
    case Type::INT16: return small(static_cast<const Int16Array*>(nullptr));
    case Type::INT32: return small(static_cast<const Int32Array*>(nullptr));
    case Type::UINT8: return small(static_cast<const UInt8Array*>(nullptr));
    case Type::UINT16: return small(static_cast<const UInt16Array*>(nullptr));
    case Type::UINT32: return small(static_cast<const UInt32Array*>(nullptr));
    case Type::INT64: return fill_integer(cell, value(static_cast<const Int64Array*>(nullptr)));
    case Type::UINT64: return fill_integer(cell, value(static_cast<const UInt64Array*>(nullptr)));
    case Type::HALF_FLOAT:
      return fill_real(
          cell, util::Float16::FromBits(value(static_cast<const HalfFloatArray*>(nullptr))).ToDouble());
    case Type::FLOAT:
      return fill_real(cell, static_cast<double>(value(static_cast<const FloatArray*>(nullptr))));
    case Type::DOUBLE: return fill_real(cell, value(static_cast<const DoubleArray*>(nullptr)));
    case Type::STRING: return text(static_cast<const StringArray*>(nullptr));
    case Type::LARGE_STRING: return text(static_cast<const LargeStringArray*>(nullptr));
    case Type::STRING_VIEW: return text(static_cast<const StringViewArray*>(nullptr));
    case Type::DECIMAL128: {
      const auto& decimals = static_cast<const Decimal128Array&>(array);
      const auto scale = static_cast<const Decimal128Type&>(*array.type()).scale();
      return cell.set_number(Decimal128(decimals.GetValue(row)).ToDouble(scale));
    }
    case Type::DECIMAL256: {
      const auto& decimals = static_cast<const Decimal256Array&>(array);
      const auto scale = static_cast<const Decimal256Type&>(*array.type()).scale();
      return cell.set_number(Decimal256(decimals.GetValue(row)).ToDouble(scale));
    }
    case Type::DICTIONARY: {
      const auto& coded = static_cast<const DictionaryArray&>(array);
      return fill(cell, *coded.dictionary(), coded.GetValueIndex(row));
    }
    case Type::EXTENSION: return fill(cell, *static_cast<const ExtensionArray&>(array).storage(), row);
    default: {  // a date or a time
      const Result<std::shared_ptr<Scalar>> scalar = array.GetScalar(row);
      cell.set_text() = scalar.ok() ? (*scalar)->ToString() : scalar.status().message();
    }
  }
}

/// A file that is open, of either format.
class File {
 public:
  explicit File(const std::string& path) : path_(path) {
    const auto file =
        of(path, [&] { return arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ); });
    const auto magic = of(path, [&] { return file->ReadAt(0, 6); })->ToString();
    file_ = file;
    if (magic.starts_with("PAR1")) {
      const auto make = [&]() -> arrow::Result<std::unique_ptr<parquet::arrow::FileReader>> {
        parquet::arrow::FileReaderBuilder builder;
        ARROW_RETURN_NOT_OK(builder.Open(file_));
        parquet::ArrowReaderProperties properties(true);  // with threads
        std::unique_ptr<parquet::arrow::FileReader> made;
        ARROW_RETURN_NOT_OK(builder.properties(properties)->Build(&made));
        return made;
      };
      parquet_ = of(path, make);
      const auto schema = [&]() -> arrow::Result<std::shared_ptr<arrow::Schema>> {
        std::shared_ptr<arrow::Schema> found;
        ARROW_RETURN_NOT_OK(parquet_->GetSchema(&found));
        return found;
      };
      schema_ = of(path, schema);
      return;
    }
    is_stream_ = magic != "ARROW1";
    const std::string continued = "\xff\xff\xff\xff";
    if (is_stream_ && !magic.starts_with(continued))
      throw DataError(path + ": it is neither a Parquet nor an Arrow file");
    schema_ = opened({})->schema();
  }

  const std::shared_ptr<arrow::Schema>& schema() const { return schema_; }

  /// From the first row on, the columns of these places, ascending; of none of them perhaps others.
  std::shared_ptr<arrow::RecordBatchReader> rows(const std::vector<int>& places) const {
    if (!parquet_) return opened(places.empty() ? std::vector<int>{0} : places);
    std::vector<int> leaves, groups(static_cast<std::size_t>(parquet_->num_row_groups()));
    for (std::size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int>(i);
    for (const int place : places)
      add_leaves(parquet_->manifest().schema_fields[static_cast<std::size_t>(place)], leaves);
    return of(path_, [&]() -> arrow::Result<std::shared_ptr<arrow::RecordBatchReader>> {
      return parquet_->GetRecordBatchReader(groups, leaves);
    });
  }

 private:
  static void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
    if (field.is_leaf()) leaves.push_back(field.column_index);
    for (const parquet::arrow::SchemaField& child : field.children) add_leaves(child, leaves);
  }

  /// Of an Arrow file; no places: all.
  std::shared_ptr<arrow::RecordBatchReader> opened(const std::vector<int>& places) const {
    arrow::ipc::IpcReadOptions options;
    options.included_fields = places;
    return of(path_, [&]() -> arrow::Result<std::shared_ptr<arrow::RecordBatchReader>> {
      if (is_stream_) {
        ARROW_RETURN_NOT_OK(file_->Seek(0));
        return arrow::ipc::RecordBatchStreamReader::Open(file_, options);
      }
      ARROW_ASSIGN_OR_RAISE(const auto reader, arrow::ipc::RecordBatchFileReader::Open(file_, options));
      std::vector<std::shared_ptr<arrow::RecordBatch>> batches;  // which are mapped, but for packed ones
      for (int i = 0; i < reader->num_record_batches(); ++i) {
        ARROW_ASSIGN_OR_RAISE(auto batch, reader->ReadRecordBatch(i));
        batches.push_back(std::move(batch));
      }
      return arrow::RecordBatchReader::Make(std::move(batches), reader->schema());
    });
  }

  std::string path_;
  std::shared_ptr<arrow::io::RandomAccessFile> file_;
  std::unique_ptr<parquet::arrow::FileReader> parquet_;  ///< null: the format is Arrow's own
  bool is_stream_ = false;
  std::shared_ptr<arrow::Schema> schema_;
};

/// The files of a folder, in their order; of what is no folder, that.
std::vector<std::string> files_of(const std::string& path) {
  std::error_code error;
  if (path == "-") throw DataError("tables of this format cannot be read from standard input: give a file");
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  if (const fs::path state = fs::path(path) / "state.json"; fs::exists(state, error)) {
    std::ifstream text(state);
    const nlohmann::json said = nlohmann::json::parse(text, nullptr, false);
    const auto listed = said.is_object() ? said.find("_data_files") : said.end();
    if (!said.is_object() || listed == said.end() || !listed->is_array())
      throw DataError(state.string() + ": it is damaged: it lists no _data_files");
    for (const nlohmann::json& each : *listed) {
      const auto name = each.is_object() ? each.find("filename") : each.end();
      if (!each.is_object() || name == each.end() || !name->is_string())
        throw DataError(state.string() + ": it is damaged: one of its _data_files has no filename");
      files.push_back((fs::path(path) / name->get<std::string>()).string());
    }
  } else {
    for (const fs::directory_entry& each : fs::directory_iterator(path, error))
      if (each.path().extension() == ".parquet") files.push_back(each.path().string());
    std::sort(files.begin(), files.end());
  }
  if (!files.empty()) return files;
  const bool splits = fs::exists(fs::path(path) / "dataset_dict.json", error);
  throw DataError(path + (splits ? ": it holds a folder a split: give one of them, as in " + path + "/train"
                                 : ": no .parquet file lies there, and no state.json"));
}

class ArrowSource final : public csv::Source {
 public:
  explicit ArrowSource(const std::string& path) : path_(path), files_(files_of(path)), file_(files_.front()) {
    names_ = file_->schema()->field_names();
    count_ = names_.size();
    for (std::size_t place = 0; place < count_; ++place) places_.push_back(static_cast<int>(place));
  }

  void want(const std::vector<std::size_t>& places) override {
    places_.assign(places.begin(), places.end());
    std::sort(places_.begin(), places_.end());
    places_.erase(std::unique(places_.begin(), places_.end()), places_.end());
    for (const int place : places_)
      if (const arrow::Field& field = *file_->schema()->field(place); !is_readable(*field.type()))
        throw DataError(path_ + ": column " + std::to_string(place + 1) + " \"" + field.name() + "\" holds " +
                        field.type()->ToString() +
                        ", which is neither text nor number: leave it out with exclude = [\"" + field.name() +
                        "\"]");
  }

  bool next(std::vector<Cell>& row) override {
    while (!batch_ || at_ == batch_->num_rows())
      if (!next_batch()) return false;
    row.resize(count_);
    for (std::size_t i = 0; i < places_.size(); ++i) {
      Cell& cell = row[static_cast<std::size_t>(places_[i])];
      if (doubles_[i] != nullptr)
        fill_real(cell, doubles_[i][at_]);
      else
        fill(cell, *columns_[i], at_);
    }
    ++at_;
    ++line_;
    return true;
  }

  std::int64_t line() const override { return line_; }
  const char* unit() const override { return "row"; }
  const std::string& path() const override { return path_; }
  std::pair<std::int64_t, std::int64_t> progress() const override { return {0, 0}; }

 private:
  bool next_batch() {
    at_ = 0;
    if (!reader_) reader_ = file_->rows(places_);
    const std::string& path = files_[number_];
    batch_ = of(path, [&]() -> arrow::Result<std::shared_ptr<arrow::RecordBatch>> {
      ARROW_ASSIGN_OR_RAISE(auto batch, reader_->Next());
      if (batch) ARROW_RETURN_NOT_OK(batch->ValidateFull());
      return batch;
    });
    if (!batch_) return next_file();
    columns_ = batch_->columns();
    doubles_.assign(columns_.size(), nullptr);
    for (std::size_t i = 0; i < columns_.size(); ++i)
      if (columns_[i]->type_id() == arrow::Type::DOUBLE && columns_[i]->null_count() == 0)
        doubles_[i] = static_cast<const arrow::DoubleArray&>(*columns_[i]).raw_values();
    if (columns_.size() < places_.size()) throw DataError(path + ": a part of it lacks columns");
    return true;
  }

  /// False behind the last.
  bool next_file() {
    if (++number_ == files_.size()) return --number_, false;
    const std::shared_ptr<arrow::Schema> before = file_->schema();
    reader_.reset();
    file_.emplace(files_[number_]);
    if (!file_->schema()->Equals(*before, false))
      throw DataError(files_[number_] + ": its columns are " + file_->schema()->ToString() +
                      ", and those of " + files_[number_ - 1] + " are " + before->ToString());
    return true;
  }

  std::string path_;
  std::vector<std::string> files_;
  std::size_t number_ = 0;  ///< of the file that is open
  std::optional<File> file_;
  std::vector<int> places_;  ///< of the columns that are read, ascending
  std::shared_ptr<arrow::RecordBatchReader> reader_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  arrow::ArrayVector columns_;  ///< of the batch
  std::vector<const double*>
      doubles_;  ///< of its columns of such numbers without a gap, which are most; else null
  std::int64_t at_ = 0, line_ = 0;
};

}  // namespace

std::unique_ptr<csv::Source> open(const std::string& path) {
  return std::make_unique<ArrowSource>(path);
}

}  // namespace parquet_table
