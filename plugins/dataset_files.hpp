// Reading the files of datasets: plain or gzip, in bounded memory, with errors that name the file.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <trainyard/error.hpp>

namespace trainyard::files {

/// A file from its beginning; one that ends in .gz is unpacked while it is read.
class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {
    errno = 0;
    file_.reset(gzopen(path_.c_str(), "rb"));
    if (!file_) fail(errno == 0 ? "not enough memory to read it" : std::strerror(errno));
    gzbuffer(file_.get(), 1 << 18);
    if (path_.ends_with(".gz") && gzdirect(file_.get()) != 0) {
      const int first = gzgetc(file_.get());  // tells a folder or an empty file from one of another format
      check();
      fail(first < 0 ? "the file is empty" : "the name ends in .gz, but the file is not gzip data");
    }
  }

  const std::string& path() const { return path_; }

  /// Up to `size` bytes; fewer only at the end of the file.
  std::size_t read(void* out, std::size_t size) {
    std::size_t done = 0;
    while (done < size) {
      const std::size_t chunk = std::min<std::size_t>(size - done, 1 << 30);
      const int got = gzread(file_.get(), static_cast<char*>(out) + done, static_cast<unsigned>(chunk));
      if (got <= 0) break;
      done += static_cast<std::size_t>(got);
    }
    if (done < size) check();
    return done;
  }

  /// Appends up to `size` bytes, as many as there are. Memory grows with what the file holds, not with what
  /// its header promises.
  void append(std::vector<std::uint8_t>& bytes, std::size_t size) {
    while (size > 0) {
      const std::size_t before = bytes.size(), chunk = std::min<std::size_t>(size, 16 << 20);
      bytes.resize(before + chunk);
      const std::size_t got = read(bytes.data() + before, chunk);
      bytes.resize(before + got);
      if (got < chunk) return;
      size -= chunk;
    }
  }

  /// The next line without its end (LF or CR LF); false after the last.
  bool line(std::string& out) {
    out.clear();
    bool ended = false;
    while (!ended && (at_ < buffer_.size() || refill())) {
      const std::size_t end = buffer_.find('\n', at_);
      ended = end != std::string::npos;
      out.append(buffer_, at_, ended ? end - at_ : end);
      at_ = ended ? end + 1 : buffer_.size();
      if (out.size() > max_line) fail("a line is longer than " + std::to_string(max_line) + " bytes");
    }
    const bool found = ended || !out.empty();
    if (out.ends_with('\r')) out.pop_back();
    return found;
  }

  [[noreturn]] void fail(const std::string& message) const { throw DataError(path_ + ": " + message); }

 private:
  static constexpr std::size_t max_line = 64 << 20;
  struct Close {
    void operator()(gzFile file) const { gzclose_r(file); }
  };

  bool refill() {
    buffer_.resize(1 << 16);
    at_ = 0;
    buffer_.resize(read(buffer_.data(), buffer_.size()));
    return !buffer_.empty();
  }

  void check() const {
    int code = Z_OK;
    const char* message = gzerror(file_.get(), &code);
    if (code == Z_OK || code == Z_STREAM_END) return;
    const std::string place = " after " + std::to_string(gztell(file_.get())) + " bytes of content";
    if (code == Z_BUF_ERROR) fail("the gzip data is truncated" + place + ": fetch the file again");
    if (code == Z_DATA_ERROR)
      fail("the gzip data is corrupt" + place + " (" + message + "): fetch the file again");
    fail(code == Z_ERRNO ? std::strerror(errno) : message);
  }

  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::string buffer_;  ///< of line()
  std::size_t at_ = 0;
};

/// The option `fraction` = [from, to]: which part of one file a split takes.
struct Fraction {
  double from = 0.0, to = 1.0;
  explicit Fraction(const std::vector<double>& bounds) {
    if (bounds.size() != 2 || bounds[0] >= bounds[1])
      throw ConfigError("fraction takes two numbers, [from, to] with from < to, as in [0.0, 0.9]");
    from = bounds[0];
    to = bounds[1];
  }
};

}  // namespace trainyard::files
