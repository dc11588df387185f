#include "jpeg.hpp"

#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it
#include <cstdlib>
#include <string>

#include <jpeglib.h>

#include <trainyard/error.hpp>

namespace corrupted {
namespace {

// libjpeg's way out of an error is longjmp, which must not pass over an object with a destructor: `encode` and `decode`
// hold none.

struct Errors {
  jpeg_error_mgr handlers{};
  std::jmp_buf on_error{};
  char message[JMSG_LENGTH_MAX] = {};

  jpeg_error_mgr* set(j_common_ptr info) {
    info->client_data = this;
    jpeg_error_mgr* const made = jpeg_std_error(&handlers);
    handlers.error_exit = [](j_common_ptr failed) {
      auto& self = *static_cast<Errors*>(failed->client_data);
      failed->err->format_message(failed, self.message);
      std::longjmp(self.on_error, 1);
    };
    return made;
  }
};

struct Size {
  std::int64_t height, width, channels;
};

struct Encoder {
  jpeg_compress_struct state{};
  Errors errors;
  unsigned char* bytes = nullptr;
  unsigned long count = 0;

  Encoder() { state.err = errors.set(reinterpret_cast<j_common_ptr>(&state)); }
  ~Encoder() {
    jpeg_destroy_compress(&state);
    std::free(bytes);
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  bool encode(const std::uint8_t* pixels, Size size, int quality) {
    if (setjmp(errors.on_error) != 0) return false;
    jpeg_create_compress(&state);
    jpeg_mem_dest(&state, &bytes, &count);
    state.image_height = static_cast<JDIMENSION>(size.height);
    state.image_width = static_cast<JDIMENSION>(size.width);
    state.input_components = static_cast<int>(size.channels);
    state.in_color_space = size.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&state);
    jpeg_set_quality(&state, quality, TRUE);
    jpeg_start_compress(&state, TRUE);
    while (state.next_scanline < state.image_height) {
      auto* row = const_cast<JSAMPROW>(pixels + state.next_scanline * size.width * size.channels);
      jpeg_write_scanlines(&state, &row, 1);
    }
    jpeg_finish_compress(&state);
    return true;
  }
};

struct Decoder {
  jpeg_decompress_struct state{};
  Errors errors;

  Decoder() { state.err = errors.set(reinterpret_cast<j_common_ptr>(&state)); }
  ~Decoder() { jpeg_destroy_decompress(&state); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  bool decode(const Encoder& from, std::uint8_t* pixels, Size size) {
    if (setjmp(errors.on_error) != 0) return false;
    jpeg_create_decompress(&state);
    jpeg_mem_src(&state, from.bytes, from.count);
    jpeg_read_header(&state, TRUE);
    state.out_color_space = size.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(&state);
    while (state.output_scanline < state.output_height) {
      JSAMPROW row = pixels + state.output_scanline * size.width * size.channels;
      jpeg_read_scanlines(&state, &row, 1);
    }
    jpeg_finish_decompress(&state);
    return true;
  }
};

}  // namespace

std::vector<std::uint8_t> through_jpeg(const std::vector<std::uint8_t>& pixels, std::int64_t height,
                                       std::int64_t width, std::int64_t channels, int quality) {
  const auto fail = [](const Errors& errors) {
    throw trainyard::DataError(std::string("jpeg_compression: an image cannot be compressed: ") +
                               errors.message);
  };
  const Size size{height, width, channels};
  std::vector<std::uint8_t> read(pixels.size());
  Encoder encoder;
  if (!encoder.encode(pixels.data(), size, quality)) fail(encoder.errors);
  Decoder decoder;
  if (!decoder.decode(encoder, read.data(), size)) fail(decoder.errors);
  return read;
}

}  // namespace corrupted
