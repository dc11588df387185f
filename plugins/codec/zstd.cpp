// Compresses tensors with Zstandard (RFC 8878), by the library of that name: a code is one frame with its
// length and a checksum, which the program zstd reads, too. It becomes shorter than that of boveda, and takes
// several times as long to write and to read.
#include <memory>
#include <string>

#include <zstd.h>

#include <trainyard/codec.hpp>
#include <trainyard/error.hpp>
#include <trainyard/manifest.hpp>

namespace zstd_codec {

using namespace trainyard;

/// Throws the library's own word for what went wrong.
std::size_t checked(std::size_t result) {
  if (ZSTD_isError(result))
    throw DataError(std::string("the codec \"zstd\" cannot do this tensor: ") + ZSTD_getErrorName(result));
  return result;
}

class Zstd final : public Codec {
 public:
  struct Options {
    std::int64_t level = 1;
  };
  static void describe(Manifest<Options>& m) {
    m.name("zstd").version("1.0.0").summary("Compresses with Zstandard: shorter than boveda, and slower.");
    m.option("level", &Options::level, "1 is fast, 19 short; those below 0 are faster still").range(-7, 22);
  }
  explicit Zstd(const Options& options) : options_(options) {}

  std::size_t bound(const TensorForm&, std::size_t size) const override { return ZSTD_compressBound(size); }

  std::size_t encode(const TensorForm&, std::span<const std::byte> bytes,
                     std::span<std::byte> code) const override {
    const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
    checked(ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, static_cast<int>(options_.level)));
    checked(ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1));
    return checked(ZSTD_compress2(context.get(), code.data(), code.size(), bytes.data(), bytes.size()));
  }

  void decode(const TensorForm&, std::span<const std::byte> code, std::span<std::byte> bytes) const override {
    const std::size_t length = checked(ZSTD_decompress(bytes.data(), bytes.size(), code.data(), code.size()));
    if (length != bytes.size())
      throw DataError("a code of the codec \"zstd\" holds " + std::to_string(length) +
                      " bytes, and its tensor has " + std::to_string(bytes.size()));
  }

 private:
  Options options_;
};

}  // namespace zstd_codec

TRAINYARD_PLUGIN(zstd_codec::Zstd)
