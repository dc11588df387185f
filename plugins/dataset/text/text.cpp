// A text file as tokens of a language model.
#include <algorithm>
#include <memory>
#include <mutex>

#include <trainyard/host.hpp>
#include <trainyard/learns.hpp>
#include <trainyard/new_data.hpp>

#include "../files.hpp"
#include "../tokens.hpp"
#include "vocabulary.hpp"

namespace {

using namespace trainyard;
using datasets::files::Reader;

std::string content_of(Reader& file) {
  std::vector<std::uint8_t> bytes;
  file.append(bytes, bytes.max_size());
  if (bytes.empty()) file.fail("the file is empty");
  return {bytes.begin(), bytes.end()};
}

/// Windows of a text that a user has; what is left of it, shorter than a window, is the last one, padded at its
/// front by what comes before it.
class NewText final : public NewData {
 public:
  NewText(std::string name, std::vector<std::uint16_t> tokens, std::int64_t length)
      : name_(std::move(name)), tokens_(std::move(tokens)), length_(length) {
    if (std::ssize(tokens_) < length)
      throw DataError(name_ + ": it is " + std::to_string(tokens_.size()) + " tokens, and a sample needs " +
                      std::to_string(length));
  }

  Batch next(std::int64_t most) override {
    Batch batch;
    begins_.clear();
    const std::int64_t all = std::ssize(tokens_);
    for (; at_ < all && std::ssize(begins_) < most; at_ += length_) {
      begins_.push_back(std::min(at_, all - length_));
      batch.indices.push_back(count_++);
    }
    batch.inputs.push_back(at::empty({std::ssize(begins_), length_}, at::kLong));
    auto* out = batch.inputs[0].mutable_data_ptr<std::int64_t>();
    for (const std::int64_t begin : begins_) out = std::copy_n(tokens_.begin() + begin, length_, out);
    return batch;
  }
  std::string name(std::int64_t sample) const override {
    return std::to_string(begins_[static_cast<std::size_t>(sample)]);
  }
  std::pair<std::int64_t, std::int64_t> progress() const override { return {at_, std::ssize(tokens_)}; }

 private:
  std::string name_;
  std::vector<std::uint16_t> tokens_;
  std::int64_t length_, at_ = 0, count_ = 0;
  std::vector<std::int64_t> begins_;
};

class Text final : public datasets::TokenDataset, public Learns, public ReadsNewData, public Tokenizer {
 public:
  struct Options {
    std::string path;
    std::string level = "char";
    std::int64_t vocabulary = 0;
    std::int64_t min_count = 1;
    std::int64_t seq_len = 128;
    std::optional<std::int64_t> stride;
    std::vector<double> fraction = {0.0, 1.0};
  };
  static void describe(Manifest<Options>& m) {
    m.name("text").version("2.0.0").summary("A text file for a language model, plain or .gz.");
    m.option("path", &Options::path, "UTF-8 text (levels char and word) or any file (byte and bpe)")
        .required()
        .file();
    m.option("level", &Options::level,
             "char: the distinct characters of the whole file, sorted, are the vocabulary; word: what stands "
             "between "
             "blanks, and line ends, the most frequent first; bpe: pairs of bytes that come often; byte: the "
             "256 bytes")
        .one_of({"char", "byte", "word", "bpe"});
    m.option("vocabulary", &Options::vocabulary,
             "tokens at most, of words and pairs; 0: 65536 words, or 4096 bytes and pairs")
        .range(0, 1 << 16);
    m.option("min_count", &Options::min_count,
             "how often a word comes in the training split; a rarer one is <unk>, token 0")
        .min(1);
    m.option("seq_len", &Options::seq_len, "tokens a sample; the targets are the tokens one place on")
        .range(1, 1 << 20);
    m.option("stride", &Options::stride, "tokens from one sample to the next; else seq_len: no overlap")
        .min(1);
    m.option("fraction", &Options::fraction, "[from, to]: the part of the file to take").range(0.0, 1.0);
  }
  explicit Text(const Options& options) : options_(options) {}

  void open(const std::string& split) override;

  Table learned() const override { return words_->to_table(); }
  void use(const Table& learned) override { words_ = text::from_table(learned, options_.level); }

  std::unique_ptr<NewData> read_new(const std::string& path) const override {
    Reader file(path, Reader::Streams::taken);
    return std::make_unique<NewText>(file.path(), encoded(content_of(file), file.path()), seq_len_);
  }

  std::vector<std::int64_t> encode(std::string_view text) const override {
    const std::vector<std::uint16_t> tokens = encoded(text, "the text");
    return {tokens.begin(), tokens.end()};
  }
  std::string decode(const std::vector<std::int64_t>& tokens) const override {
    std::string text;
    for (const std::int64_t token : tokens) text += words_->decode(static_cast<std::uint16_t>(token));
    return text;
  }

 private:
  void check_options() const;
  std::vector<std::uint16_t> encoded(std::string_view text, const std::string& name) const;

  Options options_;
  std::unique_ptr<text::Vocabulary> words_;
  std::vector<std::uint16_t> own_;
};

void Text::check_options() const {
  if (options_.level == "bpe" && options_.vocabulary > 0 && options_.vocabulary < 256)
    throw ConfigError("vocabulary = " + std::to_string(options_.vocabulary) +
                      " does not hold the 256 bytes that pairs are made of: make it 256 or more");
}

std::vector<std::uint16_t> Text::encoded(std::string_view text, const std::string& name) const {
  std::vector<std::uint16_t> tokens;
  try {
    const std::int64_t lost = words_->encode(text, tokens);
    if (lost > 0)
      host().log(LogLevel::warning, name + ": " + std::to_string(lost) + " of " +
                                        std::to_string(tokens.size()) +
                                        " words are not in the vocabulary, and become <unk>");
  } catch (const DataError& error) {
    throw DataError(name + ": " + error.what());
  }
  return tokens;
}

/// Characters are those of the whole file, as there is none that the others could do without; what is counted, words
/// and pairs, is counted in the part that the split takes.
void Text::open(const std::string&) {
  check_options();
  const datasets::files::Fraction fraction(options_.fraction);
  seq_len_ = options_.seq_len;
  stride_ = options_.stride.value_or(seq_len_);
  Reader file(options_.path);
  const std::string content = content_of(file);
  const auto part = [&](std::size_t size) {
    const auto all = static_cast<double>(size);
    return std::pair(static_cast<std::size_t>(fraction.from * all),
                     static_cast<std::size_t>(fraction.to * all));
  };
  std::string_view taken = content;
  const bool cut_first = options_.level == "word" || options_.level == "bpe";
  if (cut_first) {
    const auto [begin, end] = part(content.size());
    taken = taken.substr(begin, end - begin);
    if (options_.level == "word") {  // not within a character
      while (!taken.empty() && (static_cast<std::uint8_t>(taken.front()) & 0xc0) == 0x80)
        taken.remove_prefix(1);
      const std::size_t last = taken.data() + taken.size() - content.data();
      for (std::size_t at = last;
           at < content.size() && (static_cast<std::uint8_t>(content[at]) & 0xc0) == 0x80; ++at)
        taken = {taken.data(), taken.size() + 1};
    }
  }
  if (!words_) try {
      words_ = text::learn({options_.level, options_.vocabulary, options_.min_count}, taken);
    } catch (const DataError& error) {
      file.fail(error.what());
    }
  vocabulary_ = words_->size();
  own_ = encoded(taken, options_.path);
  if (!cut_first) {
    const auto [begin, end] = part(own_.size());
    own_.resize(end);
    own_.erase(own_.begin(), own_.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  own_.shrink_to_fit();
  tokens_ = own_;
  if (size() == 0)
    file.fail("fraction = [" + std::to_string(fraction.from) + ", " + std::to_string(fraction.to) +
              "] of it is " + std::to_string(tokens_.size()) +
              " tokens; one sample needs seq_len + 1 = " + std::to_string(seq_len_ + 1));
}

}  // namespace

TRAINYARD_PLUGIN(Text)
