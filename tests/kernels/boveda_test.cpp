// Packing by group widths: what it gives back, how long it is, and that it refuses what is damaged.
// TRAINYARD_BOVEDA_TENSORS and TRAINYARD_BOVEDA_MUTANTS say how many cases of chance there are.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/boveda_micro.hpp"
#include "tests/kernels/boveda_cases.hpp"
#include "tests/kernels/isas.hpp"

namespace boveda_tests {
namespace {

using namespace boveda_cases;

constexpr Element elements[] = {Element::bytes,    Element::int8,    Element::int16,  Element::float32,
                                Element::bfloat16, Element::float16, Element::float64};

std::vector<Isa> forms() {
  std::vector<Isa> all = isas();
  std::erase_if(all, [](Isa isa) { return !boveda::has_form(isa); });
  return all;
}

/// Encodes and decodes on every instruction set, whose bytes must be equal. Returns the container.
Bytes round_trip(const Recipe& recipe, const Bytes& values) {
  const Bytes code = encoded(recipe, values, Isa::portable);
  for (const Isa isa : forms()) {
    if (encoded(recipe, values, isa) != code) FAIL("the bytes of two instruction sets differ");
    Bytes back(values.size(), std::byte{0x5a});
    boveda::decode(code, back, isa);
    if (back != values) FAIL("another tensor came back");
  }
  return code;
}

TEST_CASE("every integer of 8 and 16 bits comes back") {
  std::vector<std::int8_t> bytes(256);
  std::iota(bytes.begin(), bytes.end(), -128);
  std::vector<std::int16_t> shorts(65536);
  std::iota(shorts.begin(), shorts.end(), -32768);
  for (const Recipe& recipe : recipes(Element::int8)) round_trip(recipe, bytes_of(bytes));
  for (const Recipe& recipe : recipes(Element::int16)) round_trip(recipe, bytes_of(shorts));
}

TEST_CASE("every float of 16 bits comes back, with infinities and NaN, and doubles of every exponent") {
  std::vector<std::uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), std::uint16_t{0});
  Random random(8);
  std::vector<std::uint64_t> doubles;
  for (std::uint64_t top = 0; top < 4096; ++top) doubles.push_back(top << 52 | random() >> 12);
  for (const Recipe& recipe : recipes(Element::float16)) round_trip(recipe, bytes_of(halves));
  for (const Recipe& recipe : recipes(Element::bfloat16)) round_trip(recipe, bytes_of(halves));
  for (const Recipe& recipe : recipes(Element::float64)) round_trip(recipe, bytes_of(doubles));
}

TEST_CASE("tensors of chance come back to the bit, with the same container on every instruction set") {
  Random random(1);
  const std::uint64_t tensors = number("TRAINYARD_BOVEDA_TENSORS", 3000);
  for (std::uint64_t i = 0; i < tensors; ++i) {
    const Element element = elements[random() % std::size(elements)];
    const std::uint32_t block = random() % 4 == 0 ? 4096 : 256 + 64 * (random() % 5);
    const std::vector<Recipe> all = recipes(element, block);
    const std::size_t count = random() % 8 == 0 ? random() % 10000 : random() % 600;
    INFO("tensor " << i);
    round_trip(all[random() % all.size()], tensor(element, count, random));
  }
}

TEST_CASE("no tensor becomes longer than by half a percent") {
  Random random(2);
  std::vector<std::uint64_t> noise((1 << 20) / 8);
  for (std::uint64_t& each : noise) each = random();
  for (const Element element : elements)
    for (const Recipe& recipe : recipes(element)) {
      const std::size_t length = encoded(recipe, bytes_of(noise), fastest_isa()).size();
      CHECK(static_cast<double>(length) <= 1.005 * (1 << 20));
      CHECK(length <= boveda::bound(recipe, 1 << 20));
    }
}

TEST_CASE("one outlier makes its own group longer, and no other") {
  std::vector<std::int8_t> values(1'000'000);
  Random random(3);
  for (std::int8_t& each : values) each = static_cast<std::int8_t>(static_cast<int>(random() % 7) - 3);
  values[500'000] = 3;
  for (const Recipe& recipe : recipes(Element::int8)) {
    if (recipe.map != Map::zigzag || recipe.zero != Zero::none) continue;
    values[500'000] = 3;
    const std::size_t before = encoded(recipe, bytes_of(values), fastest_isa()).size();
    values[500'000] = 127;
    const std::size_t after = encoded(recipe, bytes_of(values), fastest_isa()).size();
    CHECK(after > before);
    const std::size_t row = recipe.layout == Layout::lane ? 16 : 0;  // the last row of lanes is a whole one
    CHECK(after - before <= recipe.group * 8u / 8 + row);
  }
}

/// What takes no part in the closed form: the header and the entries of the blocks.
double declared(std::size_t values) {
  return 8.0 * static_cast<double>(boveda::header_bytes + (values + 4095) / 4096 * boveda::entry_bytes);
}

/// The bits of a value that are expected of round(Laplace(scale)), clipped to 127, in groups of 8, 16, 32, 64
/// and 256: the sum over k of k (c_k^G - c_(k-1)^G) + 4/G, where c_k is the chance that k bits are enough.
constexpr struct {
  double scale;
  double bits[5];
} closed_form[] = {{1, {3.3766, 3.4690, 3.6192, 3.8234, 4.1032}},
                   {2, {4.3215, 4.4278, 4.5847, 4.7893, 5.0929}},
                   {4, {5.3067, 5.4168, 5.5757, 5.7803, 6.0901}},
                   {8, {6.3029, 6.4141, 6.5734, 6.7781, 7.0894}},
                   {16, {7.2993, 7.4080, 7.5622, 7.7563, 8.0068}}};

TEST_CASE("the length of Laplace data is the one in closed form") {
  constexpr std::uint16_t groups[] = {8, 16, 32, 64, 256};
  const std::size_t values = number("TRAINYARD_BOVEDA_VALUES", 1 << 19);
  double worst = 0;
  for (const auto& [scale, bits] : closed_form) {
    const Bytes bytes = bytes_of(laplace(values, scale, 4 + static_cast<std::uint64_t>(scale)));
    for (std::size_t i = 0; i < 5; ++i)
      for (const Layout layout : {Layout::stream, Layout::plane}) {
        const std::uint16_t group = groups[i];
        if (layout == Layout::plane && group != 64) continue;
        const Bytes code =
            encoded({Element::int8, Map::zigzag, layout, Zero::none, group}, bytes, fastest_isa());
        const double found =
            (8.0 * static_cast<double>(code.size()) - declared(values)) / static_cast<double>(values);
        worst = std::max(worst, std::abs(found / bits[i] - 1.0));
        CHECK(found == Approx(bits[i]).epsilon(0.003));
      }
  }
  if (values >= 1 << 22) WARN("the largest deviation is " << 100 * worst << " %");
}

TEST_CASE("group widths gain over a bitmap of zeros alone") {
  const std::size_t values = 1 << 18;
  for (const auto& [zeros, least] : {std::pair{0.3, 0.20}, {0.5, 0.19}, {0.7, 0.16}}) {
    const std::vector<std::uint8_t> all = activations(values, zeros, 5);
    const auto there =
        static_cast<std::size_t>(std::ranges::count_if(all, [](auto each) { return each != 0; }));
    const double bitmap_only = static_cast<double>(values / 8 + there);
    const Recipe recipe{Element::int8, Map::identity, Layout::stream, Zero::bitmap, 16};
    const auto found = static_cast<double>(encoded(recipe, bytes_of(all), fastest_isa()).size());
    CHECK(1.0 - found / bitmap_only >= least);
  }
}

TEST_CASE("a block is decoded from its own bytes, its entry and the header alone") {
  Random random(6);
  for (const Element element : elements)
    for (const Recipe& recipe : recipes(element, 256)) {
      const std::size_t count = 1000 * 256 - 17, width = boveda::element_bytes(element);
      if (recipe.group != 16) continue;
      const Bytes values = tensor(element, count, random), code = encoded(recipe, values, fastest_isa());
      for (const std::uint64_t block : {std::uint64_t{0}, std::uint64_t{417}, std::uint64_t{999}}) {
        const std::size_t entry = boveda::header_bytes + block * boveda::entry_bytes;
        std::uint64_t from = 0, to = 0;
        std::memcpy(&from, code.data() + entry, 8);
        std::memcpy(&to, code.data() + entry + boveda::entry_bytes, 8);
        from = from << 1 >> 1;
        to = block == 999 ? code.size() : to << 1 >> 1;
        Bytes bare(code.size(), std::byte{0xee});  // all else is gone
        const auto keep = [&](std::size_t begin, std::size_t end) {
          std::copy(code.begin() + static_cast<std::ptrdiff_t>(begin),
                    code.begin() + static_cast<std::ptrdiff_t>(end),
                    bare.begin() + static_cast<std::ptrdiff_t>(begin));
        };
        keep(0, boveda::header_bytes);
        keep(entry, entry + (block == 999 ? 1 : 2) * boveda::entry_bytes);
        keep(from, to);
        Bytes found(block == 999 ? (256 - 17) * width : 256 * width);
        boveda::decode_block(bare, block, found, fastest_isa());
        CHECK(std::equal(found.begin(), found.end(),
                         values.begin() + static_cast<std::ptrdiff_t>(block * 256 * width)));
      }
      Bytes found(256 * width);
      CHECK_THROWS_AS(boveda::decode_block(code, 1000, found), std::out_of_range);
    }
}

/// Makes all hashes right again, so that what lies behind them is tried.
void sign(Bytes& code) {
  if (code.size() < boveda::header_bytes) return;
  const auto at = [&](std::size_t place) {
    std::uint64_t number = 0;
    std::memcpy(&number, code.data() + place, 8);
    return number;
  };
  const auto put = [&](std::size_t place, std::uint64_t number) {
    std::memcpy(code.data() + place, &number, 8);
  };
  const auto& hash = boveda::boveda_portable.hash;
  put(24, code.size());
  put(32, hash(code.data(), 32, 0));
  std::uint32_t block = 0;
  std::memcpy(&block, code.data() + 12, 4);
  if (block == 0) return;
  const std::uint64_t blocks = std::min<std::uint64_t>(
      (at(16) + block - 1) / block, (code.size() - boveda::header_bytes) / boveda::entry_bytes);
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::size_t entry = boveda::header_bytes + i * boveda::entry_bytes;
    const std::uint64_t from = at(entry) << 1 >> 1;
    const std::uint64_t to = i + 1 == blocks ? code.size() : at(entry + boveda::entry_bytes) << 1 >> 1;
    if (from > to || to > code.size()) continue;
    put(entry + 8, hash(code.data() + from, to - from, i << 1 | at(entry) >> 63));
  }
}

TEST_CASE("a damaged container is refused, or gives what it gave") {
  Random random(7);
  const std::uint64_t mutants = number("TRAINYARD_BOVEDA_MUTANTS", 20'000);
  std::uint64_t refused = 0, tried = 0;
  while (tried < mutants) {
    const Element element = elements[random() % std::size(elements)];
    const std::vector<Recipe> all = recipes(element, 256);
    const Bytes values = tensor(element, random() % 900, random);
    const Bytes code = encoded(all[random() % all.size()], values, Isa::portable);
    for (int i = 0; i < 50; ++i, ++tried) {
      Bytes mutant = code;
      const unsigned kind = random() % 4;
      if (kind == 0) mutant.resize(random() % (code.size() + 20));
      if (kind != 0)
        for (unsigned k = 0; k <= random() % 4; ++k)
          mutant[random() % (kind == 1 ? std::min<std::size_t>(mutant.size(), 72) : mutant.size())] =
              static_cast<std::byte>(random());
      const bool re_signed = random() % 2 == 0;
      if (re_signed) sign(mutant);
      mutant.shrink_to_fit();  // so that a sanitizer sees a byte read beyond it
      for (const Isa isa : forms()) {
        Bytes back(values.size());
        try {
          boveda::decode(mutant, back, isa);
          if (!re_signed && back != values) FAIL("a damage went unseen");
        } catch (const boveda::Malformed&) {
          ++refused;
        }
      }
    }
  }
  CHECK(refused > tried * forms().size() / 2);
}

TEST_CASE("what cannot be a recipe is refused") {
  const Bytes values(64);
  Bytes code(4096);
  const auto refuses = [&](Recipe recipe) {
    CHECK_THROWS_AS(boveda::encode(recipe, values, code), std::invalid_argument);
  };
  refuses({Element::int8, Map::identity, Layout::stream, Zero::none, 24});
  refuses({Element::int8, Map::identity, Layout::plane, Zero::none, 16});
  refuses({Element::int8, Map::identity, Layout::lane, Zero::bitmap, 16});
  refuses({Element::int8, Map::identity, Layout::stream, Zero::none, 16, 4000});
  CHECK_THROWS_AS(boveda::encode({Element::int16}, std::span(values).first(63), code), std::invalid_argument);
  CHECK_THROWS_AS(boveda::encode({Element::int8}, values, std::span(code).first(64)), std::invalid_argument);
}

}  // namespace
}  // namespace boveda_tests
