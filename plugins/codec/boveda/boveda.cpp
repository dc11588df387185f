// Packs tensors by group widths: see README.md.
#include <algorithm>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/codec.hpp>
#include <trainyard/error.hpp>
#include <trainyard/host.hpp>
#include <trainyard/manifest.hpp>

#include "kernels/cpu/boveda.hpp"

#include "link.hpp"

namespace boveda_codec {

namespace boveda = trainyard::kernels::boveda;
using boveda::Element;
using boveda::Recipe;

enum class Map : std::uint8_t { automatic, identity, zigzag };
enum class Layout : std::uint8_t { stream, plane, lane, automatic };
enum class Zero : std::uint8_t { automatic, none, bitmap };

}  // namespace boveda_codec

template <>
struct trainyard::Words<boveda_codec::Map> {
  static constexpr std::string_view words[] = {"auto", "identity", "zigzag"};
};
template <>
struct trainyard::Words<boveda_codec::Layout> {
  static constexpr std::string_view words[] = {"stream", "plane", "lane", "auto"};
};
template <>
struct trainyard::Words<boveda_codec::Zero> {
  static constexpr std::string_view words[] = {"auto", "none", "bitmap"};
};

namespace boveda_codec {

using namespace trainyard;
using Bytes = std::span<const std::byte>;

/// Blocks that are packed in every way that is open, to see which is shortest.
constexpr std::size_t sampled_blocks = 8;

class Boveda final : public Codec {
 public:
  struct Options {
    std::optional<std::int64_t> group;
    Layout layout = Layout::stream;
    Zero zero = Zero::automatic;
    Map map = Map::automatic;
    std::int64_t block = 4096;
    double min_gain = 0.05;
    std::optional<double> bandwidth;
  };
  static void describe(Manifest<Options>& m) {
    m.name("boveda").version("1.0.0").summary(
        "Stores a small group of values with as many bits each as its largest one needs, without loss.");
    m.option("group", &Options::group,
             "values that share a width: 8, 16, 32, 64 or 256 in the layout stream, 16 or 32 in lane, 64 in "
             "plane; where it is not given 16 of integers, 32 of floats, and 64 in plane")
        .range(8, 256);
    m.option("layout", &Options::layout,
             "order of the bits: values one after the other, bit planes, or 16 lanes; auto takes stream or "
             "plane, as is shorter on a sample");
    m.option(
        "zero", &Options::zero,
        "whether a bitmap says which values are zero, and these are left out; auto takes what is shorter "
        "on a sample");
    m.option(
        "map", &Options::map,
        "how an integer becomes a number that is small near zero; auto takes zigzag where its type has a "
        "sign");
    m.option("block", &Options::block,
             "values that are packed, checked and read by themselves, a multiple of 64")
        .range(boveda::least_block, boveda::most_block);
    m.option("min_gain", &Options::min_gain,
             "tensors of which packing saves a smaller share on a sample are stored as they are")
        .range(0.0, 1.0);
    m.option(
         "bandwidth", &Options::bandwidth,
         "GB/s at which codes are written, or sent: tensors are packed where that takes less time in all, by "
         "speeds that are measured, so that files of equal runs may differ")
        .above(0.0);
  }

  explicit Boveda(const Options& options) : options_(options) {
    for (const Recipe& each : recipes(Element::int8, true)) {
      std::vector<std::byte> code(boveda::bound(each, 0));
      try {
        boveda::encode(each, {}, code);
      } catch (const std::invalid_argument& error) {
        throw ConfigError(std::string("options of the codec: ") + error.what());
      }
    }
  }

  std::size_t bound(const TensorForm&, std::size_t size) const override {
    std::size_t most = boveda::bound(as_it_is(), size);
    for (const Element element : {Element::int8, Element::int16, Element::float32, Element::float64})
      for (const Recipe& each : recipes(element, true)) most = std::max(most, boveda::bound(each, size));
    return most;
  }

  std::size_t encode(const TensorForm& form, Bytes bytes, std::span<std::byte> code) const override {
    return boveda::encode(recipe_for(form, bytes), bytes, code);
  }

  void decode(const TensorForm& form, Bytes code, std::span<std::byte> bytes) const override {
    try {
      const Element found = boveda::container_of(code).recipe.element;
      if (found != Element::bytes && found != element_of(form.dtype))
        throw boveda::Malformed("it holds values of another type than " + std::string(form.dtype));
      boveda::decode(code, bytes);
    } catch (const boveda::Malformed& error) {
      throw DataError(std::string("no container of the codec \"boveda\" for this tensor: ") + error.what());
    }
  }

 private:
  static Recipe as_it_is() {
    return {.element = Element::bytes,
            .map = {},
            .layout = {},
            .zero = {},
            .group = 16,
            .block = boveda::most_block};
  }

  static Element element_of(std::string_view dtype) {
    if (dtype == "I8" || dtype == "U8" || dtype == "BOOL") return Element::int8;
    if (dtype == "I16" || dtype == "U16") return Element::int16;
    if (dtype == "F16") return Element::float16;
    if (dtype == "F32") return Element::float32;
    if (dtype == "F64") return Element::float64;
    return dtype == "BF16" ? Element::bfloat16 : Element::bytes;
  }

  /// Returns all that the options leave open for values of this type.
  std::vector<Recipe> recipes(Element element, bool has_sign) const {
    std::vector<boveda::Layout> layouts;
    if (options_.layout == Layout::automatic)
      layouts = {boveda::Layout::stream, boveda::Layout::plane};
    else
      layouts = {static_cast<boveda::Layout>(options_.layout)};
    const bool integers = element == Element::int8 || element == Element::int16;
    const bool zigzag = options_.map == Map::zigzag || (options_.map == Map::automatic && has_sign);
    std::vector<Recipe> all;
    for (const boveda::Layout layout : layouts)
      for (const boveda::Zero zero : {boveda::Zero::none, boveda::Zero::bitmap}) {
        const bool bitmap = zero == boveda::Zero::bitmap;
        if (options_.zero == Zero::automatic ? bitmap && layout == boveda::Layout::lane
                                             : bitmap != (options_.zero == Zero::bitmap))
          continue;
        const bool chosen = options_.group && options_.layout != Layout::automatic;
        const std::int64_t usual =
            layout == boveda::Layout::plane ? 64 : options_.group.value_or(integers ? 16 : 32);
        all.push_back({.element = element,
                       .map = integers && zigzag ? boveda::Map::zigzag : boveda::Map::identity,
                       .layout = layout,
                       .zero = zero,
                       .group = static_cast<std::uint16_t>(chosen ? *options_.group : usual),
                       .block = static_cast<std::uint32_t>(options_.block)});
      }
    return all;
  }

  /// Chooses by what blocks in even distances become.
  Recipe recipe_for(const TensorForm& form, Bytes bytes) const {
    const Element element = element_of(form.dtype);
    if (element == Element::bytes || bytes.empty()) return as_it_is();
    const std::size_t block = static_cast<std::size_t>(options_.block) * boveda::element_bytes(element);
    const std::size_t blocks = (bytes.size() + block - 1) / block,
                      step = (blocks + sampled_blocks - 1) / sampled_blocks;
    Recipe best;
    std::size_t least = 0, sampled = 0;
    std::vector<std::byte> code;
    for (const Recipe& each : recipes(element, !form.dtype.starts_with('U') && form.dtype != "BOOL")) {
      std::size_t length = 0;
      sampled = 0;
      for (std::size_t at = 0; at < bytes.size(); at += step * block) {
        const Bytes piece = bytes.subspan(at, std::min(block, bytes.size() - at));
        code.resize(boveda::bound(each, piece.size()));
        length += boveda::encode(each, piece, code) - boveda::header_bytes;
        sampled += piece.size();
      }
      if (least != 0 && length >= least) continue;
      least = length;
      best = each;
    }
    const bool gains =
        static_cast<double>(least) <= (1.0 - least_gain_of(best, form.dtype)) * static_cast<double>(sampled);
    return gains ? best : as_it_is();
  }

  /// Measures each recipe once.
  double least_gain_of(const Recipe& recipe, std::string_view dtype) const {
    if (!options_.bandwidth) return options_.min_gain;
    const std::lock_guard lock(mutex_);
    const auto known = std::ranges::find(gains_, recipe, &std::pair<Recipe, double>::first);
    if (known != gains_.end()) return known->second;
    const Speeds speeds = speeds_of(recipe);
    const double gain = std::max(options_.min_gain, least_gain(1e9 * *options_.bandwidth, speeds));
    char text[200];
    std::snprintf(
        text, sizeof text,
        "%.*s is encoded at %.2f and decoded at %.2f GB/s here: at a bandwidth of %g GB/s it is packed where "
        "that saves %.1f %% %s",
        static_cast<int>(dtype.size()), dtype.data(), 1e-9 * speeds.encode, 1e-9 * speeds.decode,
        *options_.bandwidth, 100 * std::min(gain, 1.0), gain < 1.0 ? "or more" : "of it: never");
    host().log(LogLevel::info, text);
    gains_.emplace_back(recipe, gain);
    return gain;
  }

  Options options_;
  mutable std::mutex mutex_;                              ///< of the gains
  mutable std::vector<std::pair<Recipe, double>> gains_;  ///< that recipes must have on this link
};

}  // namespace boveda_codec

TRAINYARD_PLUGIN(boveda_codec::Boveda)
