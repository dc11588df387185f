// Files of tokens, as nanoGPT and llm.c write them, mapped: no token is copied before it is read.
#include <array>
#include <cstring>
#include <memory>

#include "files.hpp"
#include "mapped.hpp"
#include "tokens.hpp"

namespace {

using namespace trainyard;

class Tokens final : public datasets::TokenDataset {
 public:
  struct Options {
    std::string path;
    std::int64_t vocabulary = 50257;
    std::int64_t seq_len = 128;
    std::optional<std::int64_t> stride;
    std::vector<double> fraction = {0.0, 1.0};
  };
  static void describe(Manifest<Options>& m) {
    m.name("tokens").version("1.0.0").summary(
        "Tokens in a file of 16-bit numbers: nanoGPT's .bin, or llm.c's with its header.");
    m.option("path", &Options::path, "the file; it is mapped, and so may be larger than the memory")
        .required()
        .file();
    m.option("vocabulary", &Options::vocabulary, "tokens run from 0 to vocabulary - 1; by default GPT-2's")
        .range(1, 1 << 16);
    m.option("seq_len", &Options::seq_len, "tokens a sample; the targets are the tokens one place on")
        .range(1, 1 << 20);
    m.option("stride", &Options::stride, "tokens from one sample to the next; else seq_len: no overlap")
        .min(1);
    m.option("fraction", &Options::fraction, "[from, to]: the part of the file to take").range(0.0, 1.0);
  }
  explicit Tokens(const Options& options) : options_(options) {}

  void open(const std::string&) override {
    const datasets::files::Fraction fraction(options_.fraction);
    seq_len_ = options_.seq_len;
    stride_ = options_.stride.value_or(seq_len_);
    vocabulary_ = options_.vocabulary;
    file_ = datasets::map_file(options_.path);
    const std::span<const std::uint8_t> body = content({file_->data(), file_->size()});
    if (body.size() % 2 != 0)
      fail("it has " + std::to_string(body.size()) + " bytes of tokens, which are two each: it is cut off");
    // An even offset into pages.
    const std::span<const std::uint16_t> all(reinterpret_cast<const std::uint16_t*>(body.data()),
                                             body.size() / 2);
    const auto count = static_cast<double>(all.size());
    first_ = static_cast<std::size_t>(fraction.from * count);
    tokens_ = all.subspan(first_, static_cast<std::size_t>(fraction.to * count) - first_);
    if (size() == 0)
      fail("the part of it is " + std::to_string(tokens_.size()) +
           " tokens; one sample needs seq_len + 1 = " + std::to_string(seq_len_ + 1));
  }

 private:
  static constexpr std::size_t header_size = 256 * sizeof(std::int32_t);
  static constexpr std::int32_t magic = 20240520, magic_of_llama = 20240801;

  [[noreturn]] void fail(const std::string& why) const { throw DataError(options_.path + ": " + why); }

  /// Behind llm.c's header, where there is one: magic, version, number of tokens.
  std::span<const std::uint8_t> content(std::span<const std::uint8_t> bytes) const {
    std::array<std::int32_t, 3> header{};
    if (bytes.size() >= sizeof header) std::memcpy(header.data(), bytes.data(), sizeof header);
    if (header[0] == magic_of_llama || (header[0] == magic && header[1] != 1))
      fail("its header says version " + std::to_string(header[1]) +
           ", whose tokens are not of 16 bits: convert it with GPT-2's tokenizer (version 1)");
    if (header[0] != magic) return bytes;
    if (bytes.size() < header_size) fail("its header is cut off");
    const std::span<const std::uint8_t> body = bytes.subspan(header_size);
    if (header[2] < 0 || body.size() != 2 * static_cast<std::size_t>(header[2]))
      fail("its header says " + std::to_string(header[2]) + " tokens, and " +
           std::to_string(body.size() / 2) + " follow: it is cut off, or damaged");
    return body;
  }

  void check(std::int64_t begin, std::span<const std::uint16_t> window) const override {
    for (std::size_t i = 0; i < window.size(); ++i)
      if (window[i] >= vocabulary_)
        fail("token " + std::to_string(first_ + static_cast<std::size_t>(begin) + i) + " is " +
             std::to_string(window[i]) + ", and vocabulary is " + std::to_string(vocabulary_) +
             ": raise it, or check that the file holds 16-bit tokens");
  }

  Options options_;
  std::unique_ptr<const lib::Mapping> file_;
  std::size_t first_ = 0;  ///< of the file's tokens, of this part
};

}  // namespace

TRAINYARD_PLUGIN(Tokens)
