// Reading the files of datasets: plain or gzip, in bounded memory, with errors that name the file.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <trainyard/error.hpp>

#include "lib/descriptor.hpp"

namespace datasets::files {

using namespace trainyard;

/// Who is told how many bytes of files, as they lie on the disk, are read on this thread; null: nobody.
inline thread_local const std::function<void(std::size_t)>* watcher = nullptr;
inline void tell_read(std::size_t bytes) {
  if (watcher != nullptr) (*watcher)(bytes);
}

/// A file from its beginning; one that holds gzip data is unpacked while it is read, all members of it.
class Reader {
 public:
  /// Of what may never end. With `taken`, "-" is standard input.
  enum class Streams : std::uint8_t { refused, taken };

  explicit Reader(std::string path, Streams streams = Streams::refused) : path_(std::move(path)) {
    const bool taken = streams == Streams::taken, standard = taken && path_ == "-";
    // Not to wait for the other end of a pipe that is refused anyway.
    file_ =
        lib::Descriptor(standard ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                 : ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | (taken ? 0 : O_NONBLOCK)));
    if (standard) path_ = "standard input";
    struct stat status {};
    if (!file_ || ::fstat(file_.get(), &status) != 0) fail(std::strerror(errno));
    if (S_ISDIR(status.st_mode)) fail(std::strerror(EISDIR));
    if (S_ISREG(status.st_mode))
      size_ = status.st_size;
    else if (!taken)
      fail("it is a pipe, a socket or a device, which may never end: write what comes from it to a file");
    const bool named_so = path_.ends_with(".gz");
    if (!fill() && named_so) fail("the file is empty");
    packed_ = input_.size() > 1 && input_[0] == 0x1f && input_[1] == 0x8b;
    if (named_so && !packed_) fail("the name ends in .gz, but the file is not gzip data");
    constexpr int gzip_alone = 16;
    if (packed_ && inflateInit2(&unpacker_.stream, gzip_alone + MAX_WBITS) != Z_OK)
      fail("not enough memory to read it");
  }

  const std::string& path() const { return path_; }

  /// Bytes of the file that were read so far, and how many it has; 0: nobody knows.
  std::pair<std::int64_t, std::int64_t> progress() const { return {static_cast<std::int64_t>(read_), size_}; }

  /// Up to `size` bytes; fewer only at the end of the file.
  std::size_t read(void* out, std::size_t size) {
    auto* bytes = static_cast<std::uint8_t*>(out);
    std::size_t done = 0;
    while (done < size) {
      const std::size_t got = packed_ ? unpack(bytes + done, size - done) : copy(bytes + done, size - done);
      if (got == 0) break;
      done += got;
    }
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

  /// Of gzip data: reads on to the end. What is damaged is told as that, and not by what was read of it.
  void check_rest() {
    std::vector<std::uint8_t> rest(packed_ ? 1 << 16 : 0);
    while (!rest.empty() && read(rest.data(), rest.size()) > 0) continue;
  }

  [[noreturn]] void fail(const std::string& message) const { throw DataError(path_ + ": " + message); }

 private:
  static constexpr std::size_t max_line = 64 << 20;
  struct Unpacker {
    z_stream stream{};
    ~Unpacker() { inflateEnd(&stream); }  // harmless where none was begun
  };

  bool refill() {
    buffer_.resize(1 << 16);
    at_ = 0;
    buffer_.resize(read(buffer_.data(), buffer_.size()));
    return !buffer_.empty();
  }

  /// The next part of the file as it lies on the disk; false at its end.
  bool fill() {
    chunk_.resize(1 << 18);
    ssize_t count = 0;
    do count = ::read(file_.get(), chunk_.data(), chunk_.size());
    while (count < 0 && errno == EINTR);
    if (count < 0) fail(std::strerror(errno));
    input_ = std::span(chunk_).first(static_cast<std::size_t>(count));
    read_ += input_.size();
    tell_read(input_.size());
    return !input_.empty();
  }

  /// Some bytes; none at the end of the file.
  std::size_t copy(std::uint8_t* out, std::size_t size) {
    if (input_.empty() && !fill()) return 0;
    const std::size_t count = std::min(size, input_.size());
    std::copy_n(input_.begin(), count, out);
    input_ = input_.subspan(count);
    return count;
  }

  /// The same of what is packed.
  std::size_t unpack(std::uint8_t* out, std::size_t size) {
    z_stream& stream = unpacker_.stream;
    for (;;) {
      if (ended_ && !next_member()) return 0;
      if (input_.empty() && !fill()) fail("the gzip data is truncated" + place() + ": fetch the file again");
      const auto room = static_cast<uInt>(std::min<std::size_t>(size, 1 << 30));
      stream.next_in = input_.data();
      stream.avail_in = static_cast<uInt>(input_.size());
      stream.next_out = out;
      stream.avail_out = room;
      const int code = inflate(&stream, Z_NO_FLUSH);
      input_ = input_.last(stream.avail_in);
      const std::size_t count = room - stream.avail_out;
      content_ += count;
      ended_ = code == Z_STREAM_END;
      if (code == Z_MEM_ERROR) fail("not enough memory to read it");
      if (code != Z_OK && code != Z_BUF_ERROR && !ended_)
        fail("the gzip data is corrupt" + place() + " (" +
             (stream.msg != nullptr ? stream.msg : "no gzip data") + "): fetch the file again");
      if (count > 0) return count;
    }
  }

  /// Goes to the gzip data that may follow the one that ended; false where the file ends. Zeros that fill up
  /// a file are no data, as for gzip(1).
  bool next_member() {
    for (;;) {
      if (input_.empty() && !fill()) return false;
      if (input_.front() != 0) break;
      input_ = input_.subspan(1);
    }
    if (input_.front() != 0x1f)
      fail("byte " + std::to_string(read_ - input_.size()) +
           ": the gzip data is over, and what follows is none: fetch the file again");
    inflateReset(&unpacker_.stream);
    return true;
  }

  std::string place() const { return " after " + std::to_string(content_) + " bytes of content"; }

  std::string path_;
  lib::Descriptor file_;
  std::vector<std::uint8_t> chunk_;     ///< of the file
  std::span<std::uint8_t> input_;       ///< what of it is not used yet
  std::int64_t size_ = 0;               ///< of the file; 0: it is a stream
  std::size_t read_ = 0, content_ = 0;  ///< bytes of the file so far, and of what was unpacked
  bool packed_ = false, ended_ = false;
  Unpacker unpacker_;
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

}  // namespace datasets::files
