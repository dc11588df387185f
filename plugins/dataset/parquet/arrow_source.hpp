// Tables in the files of Apache Arrow: Parquet, and Arrow's own, as Hugging Face's `datasets` saves them.
#pragma once

#include <memory>
#include <string>

#include "../csv/source.hpp"

namespace parquet_table {

/// Opens a file, or a folder of files with the same columns: one that `datasets` saved, or one of Parquet files, in
/// the order of their names. Throws DataError.
std::unique_ptr<csv::Source> open(const std::string& path);

}  // namespace parquet_table
