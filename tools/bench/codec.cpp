// The codec boveda beside memcpy, zstd and lz4, each on one core.
//   trainyard bench codec speed   64 MiB of round(Laplace(b)), encoded and decoded, in one run
//   trainyard bench codec floats  the same of normal numbers as F16, BF16, F32 and F64, in groups of each size
//   trainyard bench codec gain    lengths beside a bitmap of zeros alone, and of noise
//   trainyard bench codec link    whether boveda.bandwidth packs just what then arrives sooner
//   trainyard bench codec lengths files of 16-bit values in TRAINYARD_CODEC_FILES: see fixed_point.py
#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "kernels/cpu/boveda.hpp"
#include "plugins/codec/boveda/link.hpp"
#include "tests/kernels/boveda_cases.hpp"
#include "tools/bench/arguments.hpp"
#include "tools/bench/contest.hpp"

namespace trainyard::bench {
namespace {

using namespace boveda_cases;

/// A way to make data shorter, with the room that it needs.
struct Way {
  std::string name;
  std::function<std::size_t(const Bytes&, Bytes&)> encode;
  std::function<void(std::span<const std::byte>, Bytes&)> decode;
  Bytes code = {};
  std::size_t length = 0;
};

template <class Byte>
auto* as(Byte* bytes) {
  if constexpr (std::is_const_v<Byte>)
    return reinterpret_cast<const char*>(bytes);
  else
    return reinterpret_cast<char*>(bytes);
}

Way packed(const std::string& name, const Recipe& recipe, Isa isa) {
  return {name, [=](const Bytes& from, Bytes& to) { return boveda::encode(recipe, from, to, true, isa); },
          [=](std::span<const std::byte> from, Bytes& to) { boveda::decode(from, to, isa); }};
}

std::vector<Way> ways() {
  const Recipe stream{Element::int8, Map::zigzag, Layout::stream, Zero::none, 16};
  Recipe plane = stream, lane = stream, bitmap = stream;
  plane.layout = Layout::plane;
  plane.group = 64;
  lane.layout = Layout::lane;
  bitmap.zero = Zero::bitmap;
  std::vector<Way> all = {
      {"memcpy",
       [](const Bytes& from, Bytes& to) {
         std::memcpy(to.data(), from.data(), from.size());
         return from.size();
       },
       [](std::span<const std::byte> from, Bytes& to) { std::memcpy(to.data(), from.data(), to.size()); }}};
  const auto add = [&](const char* name, Isa isa) {
    if (!boveda::has_form(isa)) return;
    all.push_back(packed(std::string("stream, 16, ") + name, stream, isa));
    all.push_back(packed(std::string("plane, 64, ") + name, plane, isa));
    all.push_back(packed(std::string("lane, 16, ") + name, lane, isa));
    all.push_back(packed(std::string("stream, 16, bitmap, ") + name, bitmap, isa));
  };
  add("AVX-512", Isa::avx512);
  add("AVX2", Isa::avx2);
  add("portable", Isa::portable);
  all.push_back({"zstd -1",
                 [](const Bytes& from, Bytes& to) {
                   return ZSTD_compress(to.data(), to.size(), from.data(), from.size(), 1);
                 },
                 [](std::span<const std::byte> from, Bytes& to) {
                   ZSTD_decompress(to.data(), to.size(), from.data(), from.size());
                 }});
  all.push_back({"lz4 -1",
                 [](const Bytes& from, Bytes& to) {
                   return static_cast<std::size_t>(LZ4_compress_default(as(from.data()), as(to.data()),
                                                                        static_cast<int>(from.size()),
                                                                        static_cast<int>(to.size())));
                 },
                 [](std::span<const std::byte> from, Bytes& to) {
                   LZ4_decompress_safe(as(from.data()), as(to.data()), static_cast<int>(from.size()),
                                       static_cast<int>(to.size()));
                 }});
  return all;
}

/// Encodes once, and holds what comes back against what was given.
void prepare(std::vector<Way>& all, const Bytes& values) {
  for (Way& way : all) {
    way.code.resize(values.size() + values.size() / 128 + (1 << 16));
    way.length = way.encode(values, way.code);
    Bytes back(values.size());
    way.decode(std::span(way.code).first(way.length), back);
    if (back != values) throw std::runtime_error(way.name + " gives back another tensor");
  }
}

Bytes data(double scale, bool quick) {
  return bytes_of(laplace(quick ? 1 << 20 : 64 << 20, scale, 1));
}

/// Prints how fast each way encodes and decodes; of the last two, the first is zstd.
void race(std::vector<Way>& all, const Bytes& values, const std::string& what, int rounds) {
  prepare(all, values);
  Bytes back(values.size());
  for (const bool encodes : {true, false}) {
    std::vector<Contender> contenders;
    for (Way& way : all)
      contenders.push_back({way.name, [&way, &values, &back, encodes] {
                              if (encodes)
                                way.encode(values, way.code);
                              else
                                way.decode(std::span(way.code).first(way.length), back);
                            }});
    const std::vector<Times> times = contest(contenders, rounds);
    std::printf("%s of %zu MiB of %s, one core, CPU time\n", encodes ? "Encoding" : "Decoding",
                values.size() >> 20, what.c_str());
    std::printf("  %-30s %8s %9s %13s %13s\n", "", "ratio", "GB/s", "x memcpy", "x zstd -1");
    const std::size_t zstd = all.size() - 2;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double seconds = percentile(times[i].cpu, 0.2);
      std::printf("  %-30s %8.3f %9.2f %13.2f %13.2f\n", all[i].name.c_str(),
                  static_cast<double>(values.size()) / static_cast<double>(all[i].length),
                  static_cast<double>(values.size()) / seconds * 1e-9, 1.0 / ratio(times[i], times[0]),
                  1.0 / ratio(times[i], times[zstd]));
    }
  }
}

void speed(bool quick) {
  for (const double scale : {2.0, 4.0}) {
    std::vector<Way> all = ways();
    char what[32];
    std::snprintf(what, sizeof what, "round(Laplace(%g))", scale);
    race(all, data(scale, quick), what, quick ? 1 : 12);
  }
}

/// Returns normal numbers, as weights are.
Bytes normal_floats(Element element, std::size_t count) {
  const std::size_t width = boveda::element_bytes(element);
  Random random(3);
  std::normal_distribution<double> normal(0.0, 0.05);
  Bytes values(count * width);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = float_bits(element, normal(random));
    std::memcpy(values.data() + i * width, &bits, width);
  }
  return values;
}

/// Races through such numbers in each type of floats and in groups of each size.
void floats(bool quick) {
  const std::pair<const char*, Element> types[] = {{"F16", Element::float16},
                                                   {"BF16", Element::bfloat16},
                                                   {"F32", Element::float32},
                                                   {"F64", Element::float64}};
  for (const auto& [name, element] : types) {
    const Bytes values = normal_floats(element, (quick ? 1 << 18 : 8 << 20) / boveda::element_bytes(element));
    std::vector<Way> all = ways();
    all.erase(all.begin() + 1, all.end() - 2);  // memcpy, zstd and lz4 stay
    for (const std::uint16_t group : {8, 16, 32, 64, 256})
      all.insert(all.end() - 2,
                 packed("stream, " + std::to_string(group),
                        {element, Map::identity, Layout::stream, Zero::none, group}, fastest_isa()));
    race(all, values, std::string(name) + " of a normal distribution", quick ? 1 : 12);
  }
}

std::size_t length_of(const Recipe& recipe, const Bytes& values) {
  return encoded(recipe, values, fastest_isa()).size();
}

void gain(bool quick) {
  const std::size_t values = quick ? 1 << 18 : 1 << 22;
  std::printf("uint8 of exponential(12) magnitudes, bits a value with the container\n");
  std::printf("  %5s %8s %12s %14s %8s\n", "zeros", "plain", "bitmap only", "bitmap, width", "shorter");
  for (const double zeros : {0.3, 0.5, 0.7, 0.9}) {
    const std::vector<std::uint8_t> all = activations(values, zeros, 5);
    const auto there =
        static_cast<std::size_t>(std::ranges::count_if(all, [](auto each) { return each != 0; }));
    const double bitmap_only = static_cast<double>(values / 8 + there);
    Recipe recipe{Element::int8, Map::identity, Layout::stream, Zero::none, 16};
    const auto plain = static_cast<double>(length_of(recipe, bytes_of(all)));
    recipe.zero = Zero::bitmap;
    const auto packed = static_cast<double>(length_of(recipe, bytes_of(all)));
    const double bits = 8.0 / static_cast<double>(values);
    std::printf("  %5.1f %8.3f %12.3f %14.3f %6.1f %%\n", zeros, plain * bits, bitmap_only * bits,
                packed * bits, 100 * (1 - packed / bitmap_only));
  }
  std::vector<std::uint64_t> noise(values / 8);
  Random random(2);
  for (std::uint64_t& each : noise) each = random();
  const auto length = static_cast<double>(
      length_of({Element::int8, Map::zigzag, Layout::stream, Zero::none, 16}, bytes_of(noise)));
  std::printf("noise becomes %.3f %% longer\n", 100 * (length / static_cast<double>(values) - 1));
}

/// Holds what the codec decides against the time that encoding, a modelled link and decoding take.
void link(bool quick) {
  struct Case {
    const char* name;
    Element element;
    Bytes values;
  };
  const std::size_t size = quick ? 1 << 20 : 32 << 20;
  std::vector<std::uint64_t> noise(size / 8);
  Random random(2);
  for (std::uint64_t& each : noise) each = random();
  const Case cases[] = {{"round(Laplace(1))", Element::int8, bytes_of(laplace(size, 1.0, 1))},
                        {"round(Laplace(4))", Element::int8, bytes_of(laplace(size, 4.0, 1))},
                        {"round(Laplace(16))", Element::int8, bytes_of(laplace(size, 16.0, 1))},
                        {"normal F32", Element::float32, normal_floats(Element::float32, size / 4)},
                        {"normal BF16", Element::bfloat16, normal_floats(Element::bfloat16, size / 2)},
                        {"noise as I8", Element::int8, bytes_of(noise)},
                        {"noise as F32", Element::float32, bytes_of(noise)}};
  int right = 0, all = 0;
  std::printf("  %-20s %6s %16s %9s %9s\n", "", "GB/s", "packed / raw", "decided", "right");
  for (const Case& each : cases) {
    const Recipe recipe{each.element, each.element == Element::int8 ? Map::zigzag : Map::identity,
                        Layout::stream, Zero::none,
                        static_cast<std::uint16_t>(each.element == Element::int8 ? 16 : 32)};
    const boveda_codec::Speeds speeds = boveda_codec::speeds_of(recipe);
    std::vector<Way> way{packed(each.name, recipe, fastest_isa())};
    prepare(way, each.values);
    Bytes back(each.values.size());
    const auto contenders = {
        Contender{"encode", [&] { way[0].encode(each.values, way[0].code); }},
        Contender{"decode", [&] { way[0].decode(std::span(way[0].code).first(way[0].length), back); }}};
    const std::vector<Times> times = contest(contenders, quick ? 3 : 12);
    const double work = percentile(times[0].cpu, 0.2) + percentile(times[1].cpu, 0.2);
    const auto raw = static_cast<double>(each.values.size()), code = static_cast<double>(way[0].length);
    for (const double bandwidth : {0.5e9, 1.5e9, 10e9}) {
      const double relative = (code / bandwidth + work) / (raw / bandwidth);
      const bool packs = 1.0 - code / raw >= std::max(0.05, boveda_codec::least_gain(bandwidth, speeds));
      // Without the work, or with a gain of less than min_gain, there is nothing to be had.
      const bool is_right = packs == (relative < 1.0 && code < 0.95 * raw);
      std::printf("  %-20s %6.1f %16.3f %9s %9s\n", each.name, 1e-9 * bandwidth, relative,
                  packs ? "packed" : "raw", is_right ? "yes" : "NO");
      right += is_right;
      ++all;
    }
  }
  std::printf("%d of %d are right\n", right, all);
}

void lengths() {
  const char* const folder = std::getenv("TRAINYARD_CODEC_FILES");
  if (folder == nullptr) throw std::runtime_error("TRAINYARD_CODEC_FILES names no folder of files");
  std::vector<std::filesystem::path> files(std::filesystem::directory_iterator(folder), {});
  std::ranges::sort(files);
  double raw = 0, all_packed = 0, all_bitmap_only = 0;
  std::printf("  %-20s %9s %8s %14s %12s\n", "bits a value of 16", "values", "plain", "bitmap, width",
              "bitmap only");
  for (const std::filesystem::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    std::vector<std::int16_t> values(text.size() / 2);
    std::memcpy(values.data(), text.data(), values.size() * 2);
    Recipe recipe{Element::int16, path.extension() == ".u16" ? Map::identity : Map::zigzag, Layout::stream,
                  Zero::none, 16};
    const auto plain = static_cast<double>(length_of(recipe, bytes_of(values)));
    recipe.zero = Zero::bitmap;
    const auto bitmap = static_cast<double>(length_of(recipe, bytes_of(values)));
    const auto there = std::ranges::count_if(values, [](auto each) { return each != 0; });
    const auto count = static_cast<double>(values.size());
    const double bitmap_only = std::min(count / 8 + 2.0 * static_cast<double>(there), 2.0 * count);
    raw += 2 * count;
    all_packed += std::min(plain, bitmap);
    all_bitmap_only += bitmap_only;
    std::printf("  %-20s %9zu %8.2f %14.2f %12.2f\n", path.filename().c_str(), values.size(),
                8 * plain / count, 8 * bitmap / count, 8 * bitmap_only / count);
  }
  std::printf("in all %.1f %% of raw, %.1f %% of a bitmap of zeros alone\n", 100 * all_packed / raw,
              100 * all_packed / all_bitmap_only);
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  const trainyard::bench::Arguments arguments(argc, argv);
  if (arguments.wants("gain")) trainyard::bench::gain(arguments.quick);
  if (arguments.wants("floats")) trainyard::bench::floats(arguments.quick);
  if (arguments.wants("speed")) trainyard::bench::speed(arguments.quick);
  if (arguments.wants("link")) trainyard::bench::link(arguments.quick);
  if (arguments.part == "lengths") trainyard::bench::lengths();
}
