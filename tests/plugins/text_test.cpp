// Text as words and pairs of bytes; files of tokens.
#include <cstring>
#include <numeric>

#include <catch2/catch.hpp>
#include <trainyard/dataset.hpp>
#include <trainyard/learns.hpp>
#include <trainyard/new_data.hpp>

#include "golden.hpp"
#include "plugins/dataset/text/tokenizer_file.hpp"
#include "support/files.hpp"
#include "support/folder.hpp"
#include "support/plugin.hpp"

namespace text_tests {

using namespace trainyard;
using Catch::Contains;
using test::make;
using test::message_of;
using test::table;
using test::TempFolder;
using Tokens = std::vector<std::int64_t>;

namespace {

std::unique_ptr<Dataset> open(const std::string& name, Table options, const Dataset* train = nullptr) {
  if (options.find("seq_len") == nullptr) options.set("seq_len", 1);
  auto dataset = make<Dataset>(name, options);
  if (train != nullptr) dynamic_cast<Learns&>(*dataset).use(dynamic_cast<const Learns&>(*train).learned());
  dataset->open(train == nullptr ? "train" : "val");
  return dataset;
}

/// All but the first token of the split: with a seq_len of 1, the targets.
Tokens targets(const Dataset& dataset) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(dataset.size()));
  std::iota(indices.begin(), indices.end(), 0);
  const Batch batch = dataset.read(indices, {RandomStream(1, "data", 0), 0});
  return {batch.target.const_data_ptr<std::int64_t>(),
          batch.target.const_data_ptr<std::int64_t>() + batch.target.numel()};
}

const Tokenizer& tokenizer(const Dataset& dataset) {
  return dynamic_cast<const Tokenizer&>(dataset);
}

template <class Number>
std::string bytes(const std::vector<Number>& numbers) {
  std::string text(numbers.size() * sizeof(Number), '\0');
  std::memcpy(text.data(), numbers.data(), text.size());
  return text;
}

}  // namespace

TEST_CASE("text: pairs of bytes are merged as by Hugging Face's tokenizers, and their tokens are the same") {
  const auto golden = test::golden("pairs.json");
  const TempFolder folder;
  const auto text = golden["text"].get<std::string>(), other = golden["other"].get<std::string>();
  const std::string path = folder.write("t.txt", text);
  const auto train = open("text", table({{"path", path}, {"level", "bpe"}, {"vocabulary", 456}}));
  CHECK(train->schema().vocabulary == 456);
  const Table learned = dynamic_cast<const Learns&>(*train).learned();
  Tokens merges, expected;
  for (const Value& each : learned.find("merges")->as<Array>()) merges.push_back(each.as<std::int64_t>());
  for (const auto& pair : golden["merges"])
    for (const auto& token : pair) expected.push_back(token.get<std::int64_t>());
  CHECK(merges == expected);
  CHECK(tokenizer(*train).encode(text) == golden["tokens"].get<Tokens>());
  CHECK(tokenizer(*train).encode(other) == golden["other_tokens"].get<Tokens>());
  CHECK(tokenizer(*train).decode(tokenizer(*train).encode(other)) == other);

  const auto val =
      open("text", table({{"path", folder.write("o.txt", other)}, {"level", "bpe"}}), train.get());
  CHECK(val->schema().vocabulary == 456);
  Tokens all = golden["other_tokens"].get<Tokens>();
  all.erase(all.begin());
  CHECK(targets(*val) == all);
}

TEST_CASE("text: a tokenizer.json makes the tokens that Hugging Face's tokenizers makes, and text of them") {
  const auto golden = test::golden("tokenizer_files.json");
  const TempFolder folder;
  const std::string path = folder.write("t.txt", "the cat");
  for (const char* name : {"plain", "prefix space", "digits", "whole words"}) {
    INFO(name);
    const auto& of = golden[name];
    const auto train = open(
        "text", table({{"path", path}, {"tokenizer", folder.write("tokenizer.json", of["file"].dump())}}));
    std::int64_t last = 0;
    for (const auto& token : of["file"]["model"]["vocab"]) last = std::max(last, token.get<std::int64_t>());
    for (const auto& token : of["file"]["added_tokens"])
      last = std::max(last, token["id"].get<std::int64_t>());
    CHECK(train->schema().vocabulary == last + 1);
    for (std::size_t i = 0; i < golden["texts"].size(); ++i) {
      const auto text = golden["texts"][i].get<std::string>();
      INFO(text);
      CHECK(tokenizer(*train).encode(text) == of["tokens"][i].get<Tokens>());
      CHECK(tokenizer(*train).decode(of["tokens"][i].get<Tokens>()) == of["decoded"][i].get<std::string>());
    }
    // Another split, and the run after its end, go by what was read once.
    std::remove(folder.path("tokenizer.json").c_str());
    const auto val =
        open("text", table({{"path", path}, {"tokenizer", folder.path("tokenizer.json")}}), train.get());
    CHECK(targets(*val) == targets(*train));
  }
}

TEST_CASE("text: classes of code points are those of Hugging Face's tokenizers") {
  const auto golden = test::golden("tokenizer_files.json");
  const auto encoded = [](std::uint32_t point) {
    std::string text;
    if (point < 0x80) return std::string(1, static_cast<char>(point));
    const int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    constexpr std::uint32_t heads[] = {0, 0xc0, 0xe0, 0xf0};
    text += static_cast<char>(heads[more] | point >> (6 * more));
    for (int i = more - 1; i >= 0; --i) text += static_cast<char>(0x80 | (point >> (6 * i) & 0x3f));
    return text;
  };
  for (const auto& [name, before] : {std::pair("letters", "a"), {"numbers", "1"}}) {
    std::int64_t count = 0, sum = 0;
    for (std::uint32_t point = 0; point < 0x110000; ++point) {
      if (point >= 0xd800 && point < 0xe000) continue;
      const std::string text = before + encoded(point);
      if (text::gpt2_piece(text).size() != text.size()) continue;
      ++count;
      sum += point;
    }
    CHECK(count == golden[name][0].get<std::int64_t>());
    CHECK(sum == golden[name][1].get<std::int64_t>());
  }
}

TEST_CASE("text: what a tokenizer.json asks for and is not there is refused by its name") {
  const auto golden = test::golden("tokenizer_files.json");
  const TempFolder folder;
  const std::string path = folder.write("t.txt", "the cat");
  const auto refused = [&](const char* part, const char* value, const std::string& said) {
    INFO(part << " " << value);
    auto file = golden["plain"]["file"];
    file[nlohmann::json::json_pointer(part)] = nlohmann::json::parse(value);
    const Table options = table({{"path", path}, {"tokenizer", folder.write("tokenizer.json", file.dump())}});
    CHECK_THAT(message_of<Error>([&] { open("text", options); }), Contains(said));
  };
  refused("/model/type", "\"Unigram\"", "model.type is \"Unigram\"");
  refused("/normalizer", R"({"type": "NFC"})", "normalizer is NFC");
  refused("/pre_tokenizer", R"({"type": "Metaspace"})", "pre_tokenizer is {\"type\":\"Metaspace\"}");
  refused("/pre_tokenizer", "null", "pre_tokenizer is null");
  refused("/pre_tokenizer/use_regex", "false", "ByteLevel with use_regex");
  refused("/pre_tokenizer",
          R"({"type": "Sequence", "pretokenizers": [{"type": "Split"}, {"type": "ByteLevel"}]})",
          "pre_tokenizer is {\"type\":\"Split\"}");
  refused("/decoder", R"({"type": "WordPiece"})", "decoder is WordPiece");
  refused("/truncation", R"({"max_length": 5})", "truncation is set");
  refused("/model/dropout", "0.1", "model.dropout is 0.1");
  refused("/model/byte_fallback", "true", "model.byte_fallback is true");
  refused("/model/end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix");
  refused("/added_tokens/0/lstrip", "true", "lstrip of the added token \"<|end|>\" is true");
  refused("/added_tokens/0/id", "70000", "the token of \"<|end|>\" is 70000");
  refused("/model/vocab", R"({"a": 0})", "model.vocab has no token for the byte 0");
  refused("/model/merges/0", "\"qq\"", "merge 0 is \"qq\", expected two tokens");
  refused("/model/merges/1", R"(["q", "<q>"])", "merge 1 names");
  refused("/model", "[]", "is no tokenizer.json of Hugging Face's tokenizers");
  const std::string plain = folder.write("tokenizer.json", golden["plain"]["file"].dump());
  const auto with = [&](const char* option, const Value& value) {
    Table options = table({{"path", path}, {"tokenizer", plain}});
    options.set(option, value);
    return open("text", options);
  };
  CHECK(with("vocabulary", 500)->schema().vocabulary == 500);
  CHECK(tokenizer(*with("vocabulary", 500)).decode({499}) == "\xef\xbf\xbd");
  CHECK_THAT(message_of<ConfigError>([&] { with("vocabulary", 300); }),
             Contains("vocabulary = 300 is less than"));
  CHECK_THAT(message_of<ConfigError>([&] { with("level", "word"); }), Contains("leave one out"));
  CHECK_THAT(message_of<DataError>([&] { tokenizer(*with("seq_len", 1)).encode("a\xff"); }),
             Contains("byte 1 is not valid UTF-8"));
}

TEST_CASE("text: words of the training split, the most frequent first; others are <unk>") {
  const TempFolder folder;
  const Table words =
      table({{"path", folder.write("t.txt", "the cat saw the dog\nthe dog ran\n")}, {"level", "word"}});
  const auto train = open("text", words);
  CHECK(train->schema().vocabulary == 7);  // <unk> the \n dog cat ran saw
  CHECK(targets(*train) == Tokens{4, 6, 1, 3, 2, 1, 3, 5, 2});
  const auto val =
      open("text", table({{"path", folder.write("v.txt", "a cat ran\n")}, {"level", "word"}}), train.get());
  CHECK(val->schema().vocabulary == 7);
  CHECK(targets(*val) == Tokens{4, 5, 2});
  CHECK(tokenizer(*val).encode("a dog") == Tokens{0, 3});
  CHECK(tokenizer(*val).decode({1, 3, 2, 0}) == "the dog \n<unk> ");
  Table rare = words;
  rare.set("min_count", 2);
  CHECK(open("text", rare)->schema().vocabulary == 4);
  rare.set("vocabulary", 3);
  CHECK(open("text", rare)->schema().vocabulary == 3);
}

TEST_CASE("text: other splits go by the vocabulary of the training split, and say what it lacks") {
  const TempFolder folder;
  const auto train = open("text", table({{"path", folder.write("t.txt", "abcab")}}));
  const Table cab = table({{"path", folder.write("v.txt", "ca")}});
  CHECK(targets(*open("text", cab, train.get())) == Tokens{0});
  CHECK(open("text", cab, train.get())->schema().vocabulary == 3);
  // A character that training never saw: an evaluation leaves its samples out, a training that goes on refuses it.
  const Table abxab = table({{"path", folder.write("w.txt", "abxab")}, {"seq_len", 1}});
  const auto other = open("text", abxab, train.get());
  CHECK(other->size() == 4);
  CHECK(dynamic_cast<const Learns&>(*other).ungraded() == Tokens{1, 2});
  CHECK_THAT(
      message_of<DataError>([&] {
        auto again = make<Dataset>("text", abxab);
        dynamic_cast<Learns&>(*again).use(dynamic_cast<const Learns&>(*train).learned());
        again->open("train");
      }),
      Contains("w.txt: byte 2: the training split does not have the character 'x'") && Contains("bpe"));
  CHECK_THAT(message_of<DataError>([&] { tokenizer(*train).encode("abx"); }), Contains("the text: byte 2"));
  CHECK_THAT(message_of<ConfigError>([&] {
               open("text", table({{"path", folder.path("v.txt")}, {"level", "byte"}}), train.get());
             }),
             Contains("trained with level = \"char\""));
}

TEST_CASE("text: windows that a training split does not take teach it nothing") {
  const TempFolder folder;
  const auto learned = [&](const std::string& text, const char* level, std::int64_t seq_len,
                           std::int64_t stride) {
    auto dataset = make<Dataset>("text", table({{"path", folder.write("t.txt", text)},
                                                {"level", level},
                                                {"seq_len", seq_len},
                                                {"stride", stride}}));
    auto& learns = dynamic_cast<Learns&>(*dataset);
    learns.set_taken([](std::int64_t size) {
      Tokens all(static_cast<std::size_t>(size));
      std::iota(all.begin(), all.end(), 0);
      all.erase(all.begin() + 1);
      return all;
    });
    dataset->open("train");
    Tokens ungraded = learns.ungraded();
    return std::pair(dataset->schema().vocabulary, ungraded);
  };
  // Three windows of three: abc bcd..., of which the second ends with the first of the third.
  CHECK(learned("abcXaba", "char", 2, 2) == std::pair(std::int64_t{3}, Tokens{1}));
  CHECK(learned("abcXaba", "char", 2, 1) == std::pair(std::int64_t{4}, Tokens{}));  // X is in the third, too
  CHECK(learned("a b c X a b a", "word", 2, 2).first == 4);                         // with <unk>
  CHECK_THAT(message_of<ConfigError>([&] { learned("abcXaba", "bpe", 2, 2); }), Contains("fraction"));
}

TEST_CASE("text: samples that overlap are warned of where training takes a part of them") {
  const TempFolder folder;
  const auto warned = [&](std::int64_t stride, bool take, const char* split) {
    test::QuietHost host;
    auto dataset = make<Dataset>(
        "text", table({{"path", folder.write("t.txt", "abcabcabc")}, {"seq_len", 3}, {"stride", stride}}));
    dataset->set_host(host);
    if (take) dynamic_cast<Learns&>(*dataset).set_taken([](std::int64_t) { return Tokens{0}; });
    dataset->open(split);
    return host.logged("training reads tokens of samples that take leaves out", LogLevel::warning);
  };
  CHECK(warned(2, true, "train"));
  CHECK_FALSE(warned(3, true, "train"));
  CHECK_FALSE(warned(2, false, "train"));
  CHECK_FALSE(warned(2, true, "val"));
}

TEST_CASE("text: new text in windows, the last one as long as the others") {
  const TempFolder folder;
  const auto train = open("text", table({{"path", folder.write("t.txt", "abcdefgh")}, {"seq_len", 3}}));
  const auto data = dynamic_cast<const ReadsNewData&>(*train).read_new(folder.write("n.txt", "abcdefgh"));
  const Batch batch = data->next(9);
  CHECK(Tokens(batch.input().const_data_ptr<std::int64_t>(),
               batch.input().const_data_ptr<std::int64_t>() + 9) == Tokens{0, 1, 2, 3, 4, 5, 5, 6, 7});
  CHECK(data->name(2) == "5");
  CHECK(data->next(9).indices.empty());
}

TEST_CASE("tokens: nanoGPT's and llm.c's files") {
  const TempFolder folder;
  const std::vector<std::uint16_t> tokens = {5, 6, 7, 50256, 9, 1};
  std::vector<std::int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 6;
  const auto file = [&](const std::string& content) {
    return table({{"path", folder.write("t.bin", content)}});
  };
  for (const std::string& content : {bytes(tokens), bytes(header) + bytes(tokens)}) {
    const auto data = open("tokens", file(content));
    CHECK(data->schema().vocabulary == 50257);
    CHECK(targets(*data) == Tokens{6, 7, 50256, 9, 1});
  }
  Table half = file(bytes(tokens));
  half.set("fraction", Array{0.5, 1.0});
  CHECK(targets(*open("tokens", half)) == Tokens{9, 1});

  const auto fails = [&](const Table& options) {
    return message_of<DataError>([&] { targets(*open("tokens", options)); });
  };
  CHECK_THAT(fails(file(bytes(header) + bytes(tokens).substr(2))), Contains("says 6 tokens, and 5 follow"));
  CHECK_THAT(fails(file(bytes(header).substr(0, 100))), Contains("header is cut off"));
  header[1] = 2;
  CHECK_THAT(fails(file(bytes(header) + bytes(tokens))), Contains("version 2"));
  CHECK_THAT(fails(file(bytes(tokens).substr(1))), Contains("two each: it is cut off"));
  CHECK_THAT(fails(file("")), Contains("the file is empty"));
  CHECK_THAT(fails(file(bytes(std::vector<std::uint16_t>{1}))), Contains("seq_len + 1 = 2"));
  Table small = file(bytes(tokens));
  small.set("vocabulary", 100);
  CHECK_THAT(fails(small), Contains("token 3 is 50256, and vocabulary is 100"));
}

}  // namespace text_tests
