#include "writer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

#include "lib/escapes.hpp"
#include "lib/new_file.hpp"
#include "lib/printed.hpp"
#include "lib/words.hpp"

namespace predict {

using trainyard::ConfigError;
using trainyard::DataError;
namespace lib = trainyard::lib;

std::size_t largest(std::span<const float> numbers) {
  return static_cast<std::size_t>(std::max_element(numbers.begin(), numbers.end()) - numbers.begin());
}

namespace {

/// The shortest text that reads as the same float.
std::string text_of(float number) {
  return lib::shortest(number);
}

/// A file that takes its place at the end, or standard output.
class Output {
 public:
  explicit Output(std::string path) : path_(std::move(path)) {
    if (path_ != "-") made_.emplace(path_);
    file_ = made_ ? std::fopen(made_->temporary().c_str(), "wb") : stdout;
    if (file_ == nullptr) fail(errno);
  }
  ~Output() {
    if (made_ && file_ != nullptr) std::fclose(file_);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) fail(errno);
  }
  void rewind() {
    if (std::fseek(file_, 0, SEEK_SET) != 0) fail(errno);
  }
  void finish() {
    if (std::fflush(file_) != 0) fail(errno);
    if (!made_) return;
    if (std::fclose(std::exchange(file_, nullptr)) != 0) fail(errno);
    if (const auto failure = made_->put_in_place()) fail(failure->reason);
  }

 private:
  [[noreturn]] void fail(int reason) const {
    throw DataError((made_ ? path_ : "standard output") + " cannot be written: " + std::strerror(reason));
  }
  std::string path_;
  std::optional<lib::NewFile> made_;
  std::FILE* file_ = nullptr;
};

class CsvWriter final : public Writer {
 public:
  CsvWriter(const std::string& path, Meaning meaning, std::string id)
      : file_(path), meaning_(std::move(meaning)), id_(std::move(id)) {}
  void add(const std::string& sample, std::span<const float> numbers, const std::string& id) override {
    begin();
    std::string line = field(sample);
    if (!id_.empty()) line += ',' + field(id);
    if (meaning_.has_classes()) {
      const std::size_t best = largest(numbers);
      line += ',' + field(meaning_.columns[best]) + ',' + text_of(numbers[best]);
    }
    for (const float number : numbers) line += ',' + text_of(number);
    file_.write(line + '\n');
  }
  void finish() override {
    begin();
    file_.finish();
  }

 private:
  /// Nothing is printed ahead of what the data may be refused for.
  void begin() {
    if (std::exchange(begun_, true)) return;
    std::string line = "sample";
    if (!id_.empty()) line += ',' + field(id_);
    if (meaning_.has_classes()) line += ",class,probability";
    for (const std::string& column : meaning_.columns)
      line += ',' + field((meaning_.has_classes() ? "p_" : "") + column);
    file_.write(line + '\n');
  }
  /// A field that a space begins or ends has quotes, too.
  static std::string field(const std::string& text) {
    return lib::csv_field(text, text == lib::trimmed(text, " ") ? ",\"\r\n" : " ");
  }

  Output file_;
  Meaning meaning_;
  std::string id_;  ///< of the column that goes along; empty: none does
  bool begun_ = false;
};

class JsonWriter final : public Writer {
 public:
  JsonWriter(const std::string& path, Meaning meaning, std::string id)
      : file_(path), meaning_(std::move(meaning)), id_(std::move(id)) {}
  void add(const std::string& sample, std::span<const float> numbers, const std::string& id) override {
    nlohmann::ordered_json line, each = nlohmann::ordered_json::object();
    line["sample"] = sample;
    if (!id_.empty()) line[id_] = id;
    for (std::size_t i = 0; i < numbers.size(); ++i) each[meaning_.columns[i]] = number(numbers[i]);
    if (meaning_.has_classes()) {
      const std::size_t best = largest(numbers);
      line["class"] = meaning_.columns[best];
      line["probability"] = number(numbers[best]);
      line["probabilities"] = std::move(each);
    } else {
      line.update(each);
    }
    file_.write(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n');
  }
  void finish() override { file_.finish(); }

 private:
  /// With the digits of a float, not of the double that it becomes.
  static nlohmann::ordered_json number(float value) {
    if (!std::isfinite(value)) return text_of(value);
    return nlohmann::ordered_json::parse(text_of(value));
  }

  Output file_;
  Meaning meaning_;
  std::string id_;
};

/// float32 [samples, columns], in row order. How many samples there are is known at the end: the header has room for it.
class NpyWriter final : public Writer {
 public:
  NpyWriter(const std::string& path, const Meaning& meaning) : file_(path), columns_(meaning.columns.size()) {
    file_.write(header());
  }
  void add(const std::string&, std::span<const float> numbers, const std::string&) override {
    file_.write({reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()});
    ++rows_;
  }
  void finish() override {
    file_.rewind();
    file_.write(header());
    file_.finish();
  }

 private:
  std::string header() const {
    constexpr std::size_t size = 128, begin = 10;
    std::string text("\x93NUMPY\x01\x00", 8);
    text += static_cast<char>(size - begin);
    text += '\0';
    text += "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows_) + ", " +
            std::to_string(columns_) + "), }";
    text.resize(size - 1, ' ');
    return text + '\n';
  }

  Output file_;
  std::size_t columns_, rows_ = 0;
};

}  // namespace

std::unique_ptr<Writer> open_writer(const std::string& path, Meaning meaning, const std::string& id) {
  std::vector<std::string> taken = {"sample"};
  if (meaning.has_classes()) taken.insert(taken.end(), {"class", "probability", "probabilities"});
  for (const std::string& column : meaning.columns)
    taken.push_back((meaning.has_classes() ? "p_" : "") + column);
  if (std::find(taken.begin(), taken.end(), id) != taken.end())
    throw ConfigError("along: the answers have a column \"" + id +
                      "\" of their own: rename that of the data");
  if (path == "-" || path.ends_with(".csv")) return std::make_unique<CsvWriter>(path, std::move(meaning), id);
  if (path.ends_with(".jsonl")) return std::make_unique<JsonWriter>(path, std::move(meaning), id);
  if (path.ends_with(".npy") && !id.empty())
    throw ConfigError("out = \"" + path + "\" takes numbers alone, and along = \"" + id +
                      "\" is a column of texts: write .csv or .jsonl");
  if (path.ends_with(".npy")) return std::make_unique<NpyWriter>(path, meaning);
  throw ConfigError("out = \"" + path +
                    "\": its ending says what is written: .csv, .jsonl or .npy, and of a split "
                    ".safetensors");
}

}  // namespace predict
