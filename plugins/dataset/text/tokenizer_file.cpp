#include "tokenizer_file.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <queue>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

#include "../utf8.hpp"

namespace text {
namespace {

using nlohmann::json;
using trainyard::ConfigError;
using trainyard::DataError;

using Token = std::uint16_t;
using Texts = std::vector<std::string>;

/// A token that stands for a text as it is, which nothing cuts.
struct Added {
  std::string text;
  Token token = 0;
  bool is_second = false;  ///< it is looked for in what the others leave
};

/// What a file says, checked.
struct Tokenization {
  Texts texts;                                           ///< of the tokens, in bytes; empty where no token is
  std::vector<std::optional<Token>> bytes;               ///< 256
  std::unordered_map<std::uint32_t, std::size_t> ranks;  ///< of pairs of tokens
  std::vector<Token> merged;                             ///< by rank
  std::unordered_map<std::string, Token> tokens;         ///< by their bytes, those that were learned
  std::vector<Added> added;                              ///< longer ones first
  bool prefix_space = false, digits = false, whole_words = false;
};

std::uint32_t key_of(Token left, Token right) {
  return static_cast<std::uint32_t>(left) << 16 | right;
}

/// Merges within one piece: of all pairs that are next to each other the one that was learned first, of equal ones the
/// first, again and again.
class Piece {
 public:
  Piece(const Tokenization& rules, std::vector<Token> tokens) : rules_(rules), tokens_(std::move(tokens)) {
    const std::size_t count = tokens_.size();
    before_.resize(count);
    after_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      before_[i] = i == 0 ? none : i - 1;
      after_[i] = i + 1 < count ? i + 1 : none;
    }
    for (std::size_t i = 0; i < count; ++i) offer(i);
  }

  std::vector<Token> merged() {
    while (!queue_.empty()) {
      const Pair pair = queue_.top();
      queue_.pop();
      const std::size_t right = is_gone(pair.left) ? none : after_[pair.left];
      if (right == none || key_of(tokens_[pair.left], tokens_[right]) != pair.tokens) continue;
      tokens_[pair.left] = rules_.merged[pair.rank];
      after_[pair.left] = after_[right];
      if (after_[right] != none) before_[after_[right]] = pair.left;
      after_[right] = right;  // gone
      if (before_[pair.left] != none) offer(before_[pair.left]);
      offer(pair.left);
    }
    std::vector<Token> result;
    for (std::size_t at = 0; at != none && at < tokens_.size(); at = after_[at])
      result.push_back(tokens_[at]);
    return result;
  }

 private:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  struct Pair {
    std::size_t rank, left;
    std::uint32_t tokens;
    bool operator<(const Pair& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };

  bool is_gone(std::size_t at) const { return after_[at] == at; }
  void offer(std::size_t left) {
    if (after_[left] == none) return;
    const std::uint32_t tokens = key_of(tokens_[left], tokens_[after_[left]]);
    const auto rank = rules_.ranks.find(tokens);
    if (rank != rules_.ranks.end()) queue_.push({rank->second, left, tokens});
  }

  const Tokenization& rules_;
  std::vector<Token> tokens_;
  std::vector<std::size_t> before_, after_;
  std::priority_queue<Pair> queue_;
};

class Imported final : public Vocabulary {
 public:
  Imported(Tokenization rules, std::string file) : rules_(std::move(rules)), file_(std::move(file)) {}

  std::int64_t size() const override { return std::ssize(rules_.texts); }
  std::vector<Lost> encode(std::string_view text, std::vector<Token>& tokens) override {
    if (const auto bad = datasets::first_invalid(text))
      throw DataError("byte " + std::to_string(*bad) +
                      " is not valid UTF-8, which a tokenizer.json is for: convert the file, or take level = "
                      "\"bpe\"");
    around_added(text, false, tokens);
    return {};
  }
  /// A token that the model has and the file does not, as vocabularies are padded, is no text.
  std::string decode(Token token) const override {
    return token < rules_.texts.size() ? rules_.texts[token] : std::string("\xef\xbf\xbd");
  }
  trainyard::Table to_table() const override {
    trainyard::Table table;
    table.set("format", 1);
    table.set("level", "tokenizer");
    table.set("file", file_);
    return table;
  }

 private:
  /// Cuts at the added tokens, from the left, and of those that begin together at the longest; first at those that are
  /// looked for in the whole text, then at the others in what is left.
  void around_added(std::string_view text, bool second, std::vector<Token>& tokens) {
    const auto between = [&](std::string_view part) {
      if (part.empty()) return;
      second ? pieces(part, tokens) : around_added(part, true, tokens);
    };
    std::vector<std::size_t> next(rules_.added.size(), 0);  // where each comes next, not before `at`
    std::size_t at = 0;
    for (;;) {
      std::size_t first = text.size(), which = 0;
      for (std::size_t i = 0; i < next.size(); ++i) {
        if (rules_.added[i].is_second != second) continue;
        if (next[i] <= at) next[i] = text.find(rules_.added[i].text, at);
        if (next[i] < first) first = next[which = i];
      }
      between(text.substr(at, first - at));
      if (first == text.size()) return;
      tokens.push_back(rules_.added[which].token);
      at = first + rules_.added[which].text.size();
    }
  }

  /// Each number of the text is a part of its own where the file says so.
  void pieces(std::string_view text, std::vector<Token>& tokens) {
    if (!rules_.digits) return pieces_of_part(text, tokens);
    std::size_t begin = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = datasets::code_point(text.substr(at))->length;
      if (is_number(text.substr(at, length))) {
        if (at > begin) pieces_of_part(text.substr(begin, at - begin), tokens);
        pieces_of_part(text.substr(at, length), tokens);
        begin = at + length;
      }
      at += length;
    }
    if (begin < text.size()) pieces_of_part(text.substr(begin), tokens);
  }

  void pieces_of_part(std::string_view text, std::vector<Token>& tokens) {
    std::string with_space;
    if (rules_.prefix_space && !text.starts_with(' ')) text = with_space = " " + std::string(text);
    while (!text.empty()) {
      const std::string_view piece = gpt2_piece(text);
      text.remove_prefix(piece.size());
      const std::vector<Token>& known = tokens_of(piece);
      tokens.insert(tokens.end(), known.begin(), known.end());
    }
  }

  const std::vector<Token>& tokens_of(std::string_view piece) {
    constexpr std::size_t most_kept = 1 << 18;
    const auto known = cache_.find(std::string(piece));
    if (known != cache_.end()) return known->second;
    if (cache_.size() > most_kept) cache_.clear();
    const auto whole = rules_.whole_words ? rules_.tokens.find(std::string(piece)) : rules_.tokens.end();
    std::vector<Token> tokens;
    if (whole != rules_.tokens.end())
      tokens = {whole->second};
    else
      for (const char byte : piece) tokens.push_back(*rules_.bytes[static_cast<std::uint8_t>(byte)]);
    return cache_.emplace(std::string(piece), Piece(rules_, std::move(tokens)).merged()).first->second;
  }

  Tokenization rules_;
  std::string file_;
  std::unordered_map<std::string, std::vector<Token>> cache_;
};

/// Reads a file part by part, and refuses what it does not know by its name.
class FileReader {
 public:
  FileReader(const std::string& text, const std::string& path)
      : path_(path), file_(json::parse(text, nullptr, false)) {
    if (!file_.is_object() || !file_.contains("model") || !file_["model"].is_object())
      throw DataError(path +
                      ": is no tokenizer.json of Hugging Face's tokenizers: expected a JSON object with "
                      "\"model\"");
  }

  Tokenization read() {
    check_parts();
    read_pre_tokenizer(at(file_, "pre_tokenizer"));
    read_vocabulary();
    read_merges();
    read_added();
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const std::string& part, const std::string& found,
                           const std::string& expected) const {
    throw ConfigError(path_ + ": " + part + " is " + found + ", which is not supported, expected " +
                      expected +
                      ": tokenize the text with tokenizers, and read the numbers by dataset \"tokens\"");
  }
  [[noreturn]] void damaged(const std::string& why) const { throw DataError(path_ + ": " + why); }

  /// Null where the key is absent.
  static const json& at(const json& table, const char* key) {
    static const json null;
    const auto found = table.find(key);
    return found == table.end() ? null : *found;
  }
  static std::string type_of(const json& part) {
    return part.is_object() && part.contains("type") && part["type"].is_string()
               ? part["type"].get<std::string>()
               : part.dump();
  }
  static bool is_unset(const json& value) {
    return value.is_null() || value == false || value == 0.0 || value == "";
  }

  void check_parts() const {
    const json& model = file_["model"];
    if (const json& type = at(model, "type"); !type.is_null() && type != "BPE")
      refuse("model.type", type.dump(), "\"BPE\"");
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"})
      if (!is_unset(at(model, key))) refuse("model." + std::string(key), at(model, key).dump(), "null");
    for (const char* key : {"normalizer", "truncation", "padding"})
      if (!at(file_, key).is_null())
        refuse(key, std::string(key) == "normalizer" ? type_of(at(file_, key)) : "set", "null");
    if (const json& decoder = at(file_, "decoder"); !decoder.is_null() && type_of(decoder) != "ByteLevel")
      refuse("decoder", type_of(decoder), "ByteLevel");
  }

  void read_pre_tokenizer(const json& part) {
    if (type_of(part) == "Sequence") {
      for (const json& each : at(part, "pretokenizers")) read_pre_tokenizer(each);
      if (!has_bytes_) refuse("pre_tokenizer", part.dump(), "one that ends with ByteLevel");
      return;
    }
    if (type_of(part) == "Digits" && !has_bytes_ && at(part, "individual_digits") == true) {
      result_.digits = true;
      return;
    }
    if (type_of(part) != "ByteLevel" || has_bytes_ || at(part, "use_regex") == false)
      refuse("pre_tokenizer", part.dump(),
             "ByteLevel with use_regex, with Digits one by one ahead of it or alone");
    has_bytes_ = true;
    result_.prefix_space = at(part, "add_prefix_space") == true;
    if (result_.prefix_space && result_.digits)
      refuse("pre_tokenizer.add_prefix_space", "true behind Digits", "false");
  }

  /// The bytes that a token of the file stands for, whose characters are GPT-2's for bytes; nothing where they are none.
  static std::optional<std::string> bytes_of(std::string_view text) {
    static const std::unordered_map<std::uint32_t, char> bytes = [] {
      std::unordered_map<std::uint32_t, char> made;
      std::uint32_t next = 256;
      for (Token token = 0; token < 256; ++token) {
        const std::uint8_t byte = byte_of_token(token);
        const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        made[printable ? byte : next++] = static_cast<char>(byte);
      }
      return made;
    }();
    std::string result;
    while (!text.empty()) {
      const auto point = datasets::code_point(text);
      const auto found = point ? bytes.find(point->value) : bytes.end();
      if (found == bytes.end()) return std::nullopt;
      result += found->second;
      text.remove_prefix(point->length);
    }
    return result;
  }

  Token token_of(const json& number, const std::string& text) {
    if (!number.is_number_unsigned())
      damaged("the token of \"" + text + "\" is " + number.dump() + ", expected a number");
    const auto token = number.get<std::uint64_t>();
    if (token >= most_tokens)
      refuse("the token of \"" + text + "\"", std::to_string(token),
             "at most " + std::to_string(most_tokens - 1));
    if (token >= result_.texts.size()) result_.texts.resize(token + 1);
    return static_cast<Token>(token);
  }

  void read_vocabulary() {
    const json& vocabulary = at(file_["model"], "vocab");
    if (!vocabulary.is_object()) damaged("model.vocab is no table of tokens");
    for (const auto& [text, number] : vocabulary.items()) {
      const Token token = token_of(number, text);
      ids_.emplace(text, token);
      // A token whose text has other characters is one that was added.
      if (std::optional<std::string> bytes = bytes_of(text)) {
        result_.texts[token] = *bytes;
        result_.tokens.emplace(std::move(*bytes), token);
      }
    }
    result_.bytes.resize(256);
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const auto found = result_.tokens.find(std::string(1, static_cast<char>(byte)));
      if (found == result_.tokens.end())
        damaged("model.vocab has no token for the byte " + std::to_string(byte) +
                ", of which pairs are made");
      result_.bytes[byte] = found->second;
    }
    result_.whole_words = at(file_["model"], "ignore_merges") == true;
  }

  Token known(const std::string& text, std::size_t rank) const {
    const auto found = ids_.find(text);
    if (found == ids_.end())
      damaged("merge " + std::to_string(rank) + " names \"" + text + "\", which model.vocab lacks");
    return found->second;
  }

  void read_merges() {
    const json& merges = at(file_["model"], "merges");
    if (!merges.is_array()) damaged("model.merges is no list");
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      const json& merge = merges[rank];
      std::string left, right;
      if (merge.is_string()) {
        const auto text = merge.get<std::string>();
        const std::size_t blank = text.find(' ');
        left = text.substr(0, blank);
        right = blank == std::string::npos ? "" : text.substr(blank + 1);
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = merge[0].get<std::string>();
        right = merge[1].get<std::string>();
      }
      if (left.empty() || right.empty())
        damaged("merge " + std::to_string(rank) + " is " + merge.dump() + ", expected two tokens");
      result_.merged.push_back(known(left + right, rank));
      result_.ranks.insert_or_assign(key_of(known(left, rank), known(right, rank)), rank);
    }
  }

  void read_added() {
    const json& added = at(file_, "added_tokens");
    for (const json& each : added.is_array() ? added : json::array()) {
      const json& content = at(each, "content");
      if (!content.is_string() || content.get<std::string>().empty())
        damaged("added_tokens: " + each.dump() + " has no content");
      const auto text = content.get<std::string>();
      for (const char* key : {"single_word", "lstrip", "rstrip"})
        if (at(each, key) == true)
          refuse(std::string(key) + " of the added token \"" + text + "\"", "true", "false");
      const Token token = token_of(at(each, "id"), text);
      result_.texts[token] = text;
      result_.added.push_back({text, token, at(each, "normalized") == true});
    }
    std::stable_sort(result_.added.begin(), result_.added.end(),
                     [](const Added& a, const Added& b) { return a.text.size() > b.text.size(); });
  }

  const std::string& path_;
  json file_;
  bool has_bytes_ = false;
  std::unordered_map<std::string, Token> ids_;
  Tokenization result_;
};

}  // namespace

std::unique_ptr<Vocabulary> tokenizer_of(const std::string& content, const std::string& path) {
  return std::make_unique<Imported>(FileReader(content, path).read(), content);
}

}  // namespace text
