// Text as words and pairs of bytes; files of tokens.
#include <cstring>
#include <numeric>

#include <catch2/catch.hpp>
#include <trainyard/dataset.hpp>
#include <trainyard/learns.hpp>
#include <trainyard/new_data.hpp>

#include "golden.hpp"
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
