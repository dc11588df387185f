#include "decode.hpp"

#include <algorithm>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it
#include <initializer_list>

#include <jpeglib.h>

#include <jerror.h>
#include <png.h>

#include <trainyard/error.hpp>

namespace image_folder {
namespace {

using Bytes = std::span<const std::uint8_t>;
using trainyard::DataError;

constexpr std::int64_t longest_side = 1 << 14;

[[noreturn]] void fail(const std::string& path, const std::string& message) {
  throw DataError(path + ": " + message);
}

Pixels blank(const std::string& path, std::int64_t height, std::int64_t width, std::int64_t channels) {
  if (height > longest_side || width > longest_side)
    fail(path, "an image of " + std::to_string(height) + " x " + std::to_string(width) +
                   " is too large, or its header is damaged: at most " + std::to_string(longest_side) +
                   " pixels a side");
  Pixels pixels{height, width, channels, {}};
  pixels.bytes.resize(static_cast<std::size_t>(height * width * channels));
  return pixels;
}

// libjpeg's way out of an error is longjmp, which must not pass over an object with a destructor: the two
// functions that it may leave, `read_header` and `read_pixels`, hold none.

struct Jpeg {
  jpeg_decompress_struct decoder{};
  jpeg_error_mgr handlers{};
  std::jmp_buf on_error{};
  char message[JMSG_LENGTH_MAX] = {};

  Jpeg() {
    decoder.err = jpeg_std_error(&handlers);
    handlers.error_exit = [](j_common_ptr info) { leave(info); };
    handlers.emit_message = [](j_common_ptr info, int level) {
      if (level < 0 && !leaves_pixels_alone(info->err->msg_code)) leave(info);
    };
    decoder.client_data = this;
  }
  ~Jpeg() { jpeg_destroy_decompress(&decoder); }  // harmless where none was created
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  // False, with a message, where the file is damaged.
  bool read_header(Bytes file) {
    if (setjmp(on_error) != 0) return false;
    jpeg_create_decompress(&decoder);
    jpeg_mem_src(&decoder, file.data(), file.size());
    jpeg_read_header(&decoder, TRUE);
    return true;
  }
  bool read_pixels(Pixels& pixels) {
    if (setjmp(on_error) != 0) return false;
    decoder.out_color_space = pixels.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(&decoder);
    while (decoder.output_scanline < decoder.output_height) {
      JSAMPROW row = pixels.bytes.data() + decoder.output_scanline * pixels.width * pixels.channels;
      jpeg_read_scanlines(&decoder, &row, 1);
    }
    jpeg_finish_decompress(&decoder);
    return true;
  }

 private:
  /// Of others libjpeg makes up for what it does not find.
  static bool leaves_pixels_alone(int warning) {
    return warning == JWRN_ADOBE_XFORM || warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_JFIF_MAJOR;
  }
  [[noreturn]] static void leave(j_common_ptr info) {
    auto& self = *static_cast<Jpeg*>(info->client_data);
    info->err->format_message(info, self.message);
    std::longjmp(self.on_error, 1);
  }
};

Pixels decode_jpeg(const std::string& path, Bytes file, std::int64_t channels) {
  const auto damaged = [&](const Jpeg& jpeg) {
    fail(path, std::string("the JPEG file cannot be decoded (") + jpeg.message +
                   "): fetch it again, or take it out");
  };
  Jpeg jpeg;
  if (!jpeg.read_header(file)) damaged(jpeg);
  Pixels pixels = blank(path, jpeg.decoder.image_height, jpeg.decoder.image_width, channels);
  if (!jpeg.read_pixels(pixels)) damaged(jpeg);
  return pixels;
}

struct Png {
  png_image image{};
  ~Png() { png_image_free(&image); }
};

/// The rounding is libjpeg's, so that both formats give the same.
std::uint8_t luma(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 32768) >> 16);
}

Pixels decode_png(const std::string& path, Bytes file, std::int64_t channels) {
  Png png;
  png.image.version = PNG_IMAGE_VERSION;
  const auto damaged = [&] {
    fail(path, std::string("the PNG file cannot be decoded (") + png.image.message +
                   "): fetch it again, or take it out");
  };
  if (png_image_begin_read_from_memory(&png.image, file.data(), file.size()) == 0) damaged();
  png.image.format = PNG_FORMAT_RGBA;
  png.image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  constexpr std::int64_t stored = 4;
  Pixels pixels = blank(path, png.image.height, png.image.width, stored);
  if (png_image_finish_read(&png.image, nullptr, pixels.bytes.data(), 0, nullptr) == 0) damaged();
  std::uint8_t* out = pixels.bytes.data();
  for (std::size_t at = 0; at < pixels.bytes.size(); at += stored) {
    const std::uint8_t* rgb = pixels.bytes.data() + at;
    if (channels == 1)
      *out++ = luma(rgb);
    else
      for (int c = 0; c < 3; ++c) *out++ = rgb[c];
  }
  pixels.channels = channels;
  pixels.bytes.resize(static_cast<std::size_t>(out - pixels.bytes.data()));
  return pixels;
}

bool begins_with(Bytes file, std::initializer_list<std::uint8_t> signature) {
  return file.size() >= signature.size() && std::equal(signature.begin(), signature.end(), file.begin());
}

}  // namespace

Pixels decode(const std::string& path, Bytes file, std::int64_t channels) {
  if (begins_with(file, {0xff, 0xd8, 0xff})) return decode_jpeg(path, file, channels);
  if (begins_with(file, {0x89, 'P', 'N', 'G'})) return decode_png(path, file, channels);
  fail(path, file.empty() ? "the file is empty: fetch it again, or take it out"
                          : "it begins neither as a JPEG nor as a PNG file: convert it, or take it out");
}

}  // namespace image_folder
