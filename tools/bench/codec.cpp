// The codec boveda beside memcpy, zstd and lz4, each on one core.
//   trainyard bench codec speed   64 MiB of round(Laplace(b)), encoded and decoded, in one run
//   trainyard bench codec ratio   the lengths of the same data
#include <lz4.h>
#include <zstd.h>

#include <cstring>
#include <memory>
#include <stdexcept>

#include "kernels/cpu/boveda.hpp"
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

void speed(bool quick) {
  for (const double scale : {2.0, 4.0}) {
    const Bytes values = data(scale, quick);
    std::vector<Way> all = ways();
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
      const std::vector<Times> times = contest(contenders, quick ? 1 : 12);
      std::printf("%s of %zu MiB of round(Laplace(%g)), one core, CPU time\n",
                  encodes ? "Encoding" : "Decoding", values.size() >> 20, scale);
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
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  const trainyard::bench::Arguments arguments(argc, argv);
  if (arguments.wants("speed")) trainyard::bench::speed(arguments.quick);
}
