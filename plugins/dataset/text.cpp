// A text file as tokens of a character or byte language model.
#include <algorithm>
#include <bit>

#include "files.hpp"
#include "tokens.hpp"

namespace {

using datasets::files::Reader;

constexpr std::size_t largest_vocabulary = 1 << 16;

/// The code points of UTF-8 text (RFC 3629).
std::vector<std::uint32_t> decode(const std::vector<std::uint8_t>& bytes, const Reader& file) {
  std::vector<std::uint32_t> points;
  points.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const int ones = std::countl_one(bytes[at]);
    const std::size_t length = ones == 0 ? 1 : static_cast<std::size_t>(ones);
    bool valid = ones != 1 && length <= 4 && at + length <= bytes.size();
    std::uint32_t point = ones == 0 ? bytes[at] : bytes[at] & (0x7fu >> length);
    for (std::size_t i = 1; valid && i < length; ++i) {
      valid = (bytes[at + i] & 0xc0) == 0x80;
      point = point << 6 | (bytes[at + i] & 0x3fu);
    }
    constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (!valid || point < smallest[length] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
      file.fail("byte " + std::to_string(at) +
                " is not valid UTF-8: convert the file, or set level = \"byte\"");
    points.push_back(point);
    at += length;
  }
  return points;
}

class Text final : public datasets::TokenDataset {
 public:
  struct Options {
    std::string path;
    std::string level = "char";
    std::int64_t seq_len = 128;
    std::optional<std::int64_t> stride;
    std::vector<double> fraction = {0.0, 1.0};
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("text").version("1.0.0").summary(
        "A text file for a character or byte language model, plain or .gz.");
    m.option("path", &Options::path, "UTF-8 text (level char) or any file (level byte)").required().file();
    m.option("level", &Options::level,
             "char: the distinct characters of the whole file, sorted, are the vocabulary; byte: the 256 "
             "bytes are")
        .one_of({"char", "byte"});
    m.option("seq_len", &Options::seq_len, "tokens a sample; the targets are the tokens one place on")
        .range(1, 1 << 20);
    m.option("stride", &Options::stride, "tokens from one sample to the next; else seq_len: no overlap")
        .min(1);
    m.option("fraction", &Options::fraction, "[from, to]: the part of the file to take").range(0.0, 1.0);
  }
  explicit Text(const Options& options) : options_(options) {}

  void open(const std::string&) override {
    const datasets::files::Fraction fraction(options_.fraction);
    seq_len_ = options_.seq_len;
    stride_ = options_.stride.value_or(seq_len_);
    Reader file(options_.path);
    std::vector<std::uint8_t> bytes;
    file.append(bytes, bytes.max_size());
    if (bytes.empty()) file.fail("the file is empty");
    if (options_.level == "byte") {
      tokens_.assign(bytes.begin(), bytes.end());
      vocabulary_ = 256;
    } else
      tokens_ = encode(decode(bytes, file), file);
    const auto all = static_cast<double>(tokens_.size());
    tokens_.resize(static_cast<std::size_t>(fraction.to * all));
    tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(fraction.from * all));
    tokens_.shrink_to_fit();
    if (size() == 0)
      file.fail("fraction = [" + std::to_string(fraction.from) + ", " + std::to_string(fraction.to) +
                "] of it is " + std::to_string(tokens_.size()) +
                " tokens; one sample needs seq_len + 1 = " + std::to_string(seq_len_ + 1));
  }

 private:
  std::vector<std::uint16_t> encode(const std::vector<std::uint32_t>& points, const Reader& file) {
    std::vector<std::uint32_t> id_of(0x110000);
    for (const std::uint32_t point : points) id_of[point] = 1;
    std::uint32_t distinct = 0;
    for (std::uint32_t& id : id_of)
      if (id == 1) id = distinct++;
    if (distinct > largest_vocabulary)
      file.fail("it has " + std::to_string(distinct) + " distinct characters; at most 65536 are supported");
    vocabulary_ = distinct;
    std::vector<std::uint16_t> tokens(points.size());
    std::transform(points.begin(), points.end(), tokens.begin(),
                   [&](std::uint32_t point) { return static_cast<std::uint16_t>(id_of[point]); });
    return tokens;
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Text)
