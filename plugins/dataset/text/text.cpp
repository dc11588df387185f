// A text file as tokens of a language model.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <trainyard/host.hpp>
#include <trainyard/learns.hpp>
#include <trainyard/new_data.hpp>

#include "../files.hpp"
#include "../tokens.hpp"
#include "json_lines.hpp"
#include "tokenizer_file.hpp"
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
    std::string tokenizer;
    std::string field;
    std::optional<std::string> between;
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
             "char: the distinct characters of the training split, sorted, are the vocabulary; word: what "
             "stands between blanks, and line ends, the most frequent first; bpe: pairs of bytes that come "
             "often; byte: the 256 bytes")
        .one_of({"char", "byte", "word", "bpe"});
    m.option(
         "tokenizer", &Options::tokenizer,
         "in the place of level: tokenizer.json of Hugging Face's tokenizers, pairs of bytes as GPT-2 has "
         "them")
        .file();
    m.option("field", &Options::field,
             "of files of JSON lines, such as {\"text\": \"...\"}: the key of the texts, which are joined; "
             "left out: "
             "files are plain text");
    m.option("between", &Options::between,
             "with field: what stands between two texts, such as \"<|endoftext|>\"; left out: a line end");
    m.option(
         "vocabulary", &Options::vocabulary,
         "tokens at most, of words and pairs; 0: 65536 words, or 4096 bytes and pairs. With a tokenizer: as "
         "many as the model is to have, where it has more than the file")
        .range(0, 1 << 16);
    m.option("min_count", &Options::min_count,
             "how often a word comes in the training split; a rarer one is <unk>, token 0")
        .min(1);
    m.option("seq_len", &Options::seq_len, "tokens a sample; the targets are the tokens one place on")
        .range(1, 1 << 20);
    m.option("stride", &Options::stride, "tokens from one sample to the next; else seq_len: no overlap")
        .min(1);
    m.option("fraction", &Options::fraction, "[from, to]: the part of the file to take").range(0.0, 1.0);
    m.needs("data.train.take = none where level = bpe");
  }
  explicit Text(const Options& options) : options_(options) {}

  void open(const std::string& split) override;
  void set_taken(TakenSamples taken) override { taken_ = std::move(taken); }
  std::vector<std::int64_t> ungraded() const override { return ungraded_; }

  Table learned() const override { return words_->to_table(); }
  void use(const Table& learned) override { words_ = text::from_table(learned, level()); }

  std::unique_ptr<NewData> read_new(const std::string& path) const override {
    Reader file(path, Reader::Streams::taken);
    return std::make_unique<NewText>(file.path(), encoded(text_in(file), file.path()), seq_len_);
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
  std::optional<std::int64_t> unknown() const override {
    return words_->has_unknown() ? std::optional<std::int64_t>(0) : std::nullopt;
  }

 private:
  /// That of a tokenizer is none of the option's words.
  std::string level() const { return options_.tokenizer.empty() ? options_.level : "tokenizer"; }
  std::string text_in(Reader& file) const;
  void check_options() const;
  std::unique_ptr<text::Vocabulary> learned_of(std::string_view part, const std::vector<bool>& taken) const;
  std::int64_t tokens_of_model() const;
  std::vector<std::uint16_t> encoded(std::string_view text, const std::string& name) const;
  [[noreturn]] static void fail_lost(const text::Lost& lost, std::string_view text);
  void tell_unknown(const std::string& name, std::int64_t lost, std::int64_t words) const;
  std::string_view part_of(std::string_view content) const;
  std::vector<bool> taken_units(std::string_view part) const;
  void leave_out(const std::string& split, const std::vector<text::Lost>& lost, std::string_view content,
                 const std::vector<bool>& taken);

  Options options_;
  std::unique_ptr<text::Vocabulary> words_;
  TakenSamples taken_;  ///< empty: all samples
  std::vector<std::uint16_t> own_;
  std::vector<std::int64_t> ungraded_;
};

std::string Text::text_in(Reader& file) const {
  std::string content = content_of(file);
  if (options_.field.empty()) return content;
  try {
    return text::joined_texts(content, options_.field, options_.between.value_or("\n"));
  } catch (const DataError& error) {
    file.fail(error.what());
  }
}

void Text::check_options() const {
  if (options_.between && options_.field.empty())
    throw ConfigError("between stands between texts of JSON lines: say their key by field, or leave it out");
  if (!options_.tokenizer.empty() && options_.level != "char")
    throw ConfigError("level = \"" + options_.level + "\" and tokenizer = \"" + options_.tokenizer +
                      "\" both say what a token is: leave one out");
  if (!options_.tokenizer.empty() && options_.min_count != 1)
    throw ConfigError("min_count is of level = \"word\"; a tokenizer has its tokens: leave it out");
  if (options_.level == "bpe" && options_.vocabulary > 0 && options_.vocabulary < 256)
    throw ConfigError("vocabulary = " + std::to_string(options_.vocabulary) +
                      " does not hold the 256 bytes that pairs are made of: make it 256 or more");
}

std::unique_ptr<text::Vocabulary> Text::learned_of(std::string_view part,
                                                   const std::vector<bool>& taken) const {
  if (options_.tokenizer.empty())
    return text::learn({options_.level, options_.vocabulary, options_.min_count}, part, taken);
  Reader file(options_.tokenizer);
  return text::tokenizer_of(content_of(file), options_.tokenizer);
}

/// Models often have more tokens than their tokenizer, so that their number is a round one.
std::int64_t Text::tokens_of_model() const {
  if (options_.tokenizer.empty() || options_.vocabulary == 0) return words_->size();
  if (options_.vocabulary < words_->size())
    throw ConfigError("vocabulary = " + std::to_string(options_.vocabulary) + " is less than the " +
                      std::to_string(words_->size()) + " tokens of " + options_.tokenizer +
                      ": leave it out, or make it that of the model");
  return options_.vocabulary;
}

/// A text of a user's own.
std::vector<std::uint16_t> Text::encoded(std::string_view text, const std::string& name) const {
  std::vector<std::uint16_t> tokens;
  try {
    const std::vector<text::Lost> lost = words_->encode(text, tokens);
    if (!lost.empty() && !words_->has_unknown()) fail_lost(lost.front(), text);
    tell_unknown(name, std::ssize(lost), std::ssize(tokens));
  } catch (const DataError& error) {
    throw DataError(name + ": " + error.what());
  }
  return tokens;
}

void Text::fail_lost(const text::Lost& lost, std::string_view text) {
  throw DataError(
      "byte " + std::to_string(lost.text.data() - text.data()) +
      ": the training split does not have the character '" + std::string(lost.text) +
      "': take it out, or train with level = \"bpe\" or \"byte\", which have a token for every text");
}

void Text::tell_unknown(const std::string& name, std::int64_t lost, std::int64_t words) const {
  if (lost > 0)
    host().log(LogLevel::warning, name + ": " + std::to_string(lost) + " of " + std::to_string(words) +
                                      " words are not in the vocabulary, and become <unk>");
}

/// What `fraction` takes of the file: a share of its characters, or of its bytes.
std::string_view Text::part_of(std::string_view content) const {
  const datasets::files::Fraction fraction(options_.fraction);
  if (fraction.from == 0.0 && fraction.to == 1.0) return content;
  const bool characters = level() == "char";
  const auto all = static_cast<double>(characters ? text::count_units("char", content) : content.size());
  const auto begin = static_cast<std::size_t>(fraction.from * all),
             end = static_cast<std::size_t>(fraction.to * all);
  if (characters) return text::characters_between(content, begin, end);
  std::string_view part = content.substr(begin, end - begin);
  if (level() != "word" && level() != "tokenizer") return part;
  const auto continues = [](char byte) { return (static_cast<std::uint8_t>(byte) & 0xc0) == 0x80; };
  while (!part.empty() && continues(part.front())) part.remove_prefix(1);  // not within a character
  for (std::size_t at = end; at < content.size() && continues(content[at]); ++at)
    part = {part.data(), part.size() + 1};
  return part;
}

/// Which characters or words of the part belong to a sample that the split takes; empty: all.
std::vector<bool> Text::taken_units(std::string_view part) const {
  if (!taken_ || level() == "byte" || level() == "tokenizer") return {};
  if (level() == "bpe") {
    if (words_) return {};  // every text has tokens
    throw ConfigError(
        "take cannot tell samples before they are made, and level = \"bpe\" makes them of pairs that it "
        "learns "
        "from them: take a part of the file with fraction, or take another level");
  }
  const std::size_t units = text::count_units(options_.level, part);
  std::vector<bool> taken(units);
  for (const std::int64_t sample : taken_(windows_in(static_cast<std::int64_t>(units)))) {
    const auto begin = taken.begin() + sample * stride_;
    std::fill(begin, begin + seq_len_ + 1, true);
  }
  return taken;
}

/// Samples with a character that has no token are left out of evaluations; a training split has none of them.
void Text::leave_out(const std::string& split, const std::vector<text::Lost>& lost, std::string_view content,
                     const std::vector<bool>& taken) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> characters;  // how often, and the first byte
  std::set<std::int64_t> samples;
  for (const text::Lost& each : lost) {
    const bool counts = taken.empty() || taken[each.token];
    if (counts && split == "train") fail_lost(each, content);
    const auto token = static_cast<std::int64_t>(each.token);
    const std::int64_t first = std::max<std::int64_t>((token - seq_len_ + stride_ - 1) / stride_, 0),
                       last = std::min(token / stride_, windows_in(std::ssize(own_)) - 1);
    for (std::int64_t sample = first; sample <= last; ++sample) samples.insert(sample);
    if (counts)
      ++characters.try_emplace(std::string(each.text), 0, each.text.data() - content.data())
            .first->second.first;
  }
  ungraded_.assign(samples.begin(), samples.end());
  if (characters.empty()) return;
  constexpr std::size_t most_named = 5;
  std::string names;
  std::size_t named = 0;
  for (const auto& [character, found] : characters)
    if (named++ < most_named)
      names += (names.empty() ? "'" : ", '") + character + "' (" + std::to_string(found.first) +
               (found.first == 1 ? " time, at byte " : " times, first at byte ") +
               std::to_string(found.second) + ")";
  if (named > most_named) names += " and " + std::to_string(named - most_named) + " more";
  host().log(LogLevel::warning, "the split " + split + ": the training split does not have the characters " +
                                    names + ": evaluations leave samples with them out");
}

/// What is learned comes from the samples of the training split.
void Text::open(const std::string& split) {
  check_options();
  seq_len_ = options_.seq_len;
  stride_ = options_.stride.value_or(seq_len_);
  if (taken_ && split == "train" && stride_ < seq_len_)
    host().log(LogLevel::warning, "stride = " + std::to_string(stride_) +
                                      " is less than seq_len = " + std::to_string(seq_len_) +
                                      ": samples overlap, so that training reads tokens of samples that take "
                                      "leaves out; leave stride out, or cut the text by fraction");
  Reader file(options_.path);
  const std::string content = text_in(file);
  try {
    const std::string_view part = part_of(content);
    const std::vector<bool> taken = taken_units(part);
    if (!words_) words_ = learned_of(part, taken);
    vocabulary_ = tokens_of_model();
    const std::vector<text::Lost> lost = words_->encode(part, own_);
    const auto counts = [&](const text::Lost& each) { return taken.empty() || taken[each.token]; };
    if (!words_->has_unknown())
      leave_out(split, lost, content, taken);
    else
      tell_unknown(options_.path, std::ranges::count_if(lost, counts),
                   taken.empty() ? std::ssize(own_) : std::ranges::count(taken, true));
  } catch (const DataError& error) {
    file.fail(error.what());
  }
  own_.shrink_to_fit();
  tokens_ = own_;
  if (size() == 0)
    file.fail("fraction = [" + std::to_string(options_.fraction[0]) + ", " +
              std::to_string(options_.fraction[1]) + "] of it is " + std::to_string(tokens_.size()) +
              " tokens; one sample needs seq_len + 1 = " + std::to_string(seq_len_ + 1));
}

}  // namespace

TRAINYARD_PLUGIN(Text)
