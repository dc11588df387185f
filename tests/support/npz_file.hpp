// Makes .npz files for tests.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace trainyard::test {

template <class T>
std::string bytes_of_number(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// An array as .npy; `type` as NumPy has it, "<f4".
template <class T>
std::string npy(const std::string& type, const std::string& shape, const std::vector<T>& values,
                int version = 1, bool fortran = false) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': " + (fortran ? "True" : "False") +
                       ", 'shape': (" + shape + "), }";
  header.resize((header.size() / 64 + 1) * 64, ' ');
  std::string file = "\x93NUMPY" + std::string{static_cast<char>(version), '\0'};
  file += version == 1 ? bytes_of_number(static_cast<std::uint16_t>(header.size()))
                       : bytes_of_number(static_cast<std::uint32_t>(header.size()));
  file += header;
  for (const T value : values) file += bytes_of_number(value);
  return file;
}

/// A zip archive, as Python's zipfile writes it.
class ZipFile {
 public:
  /// `long_sizes`: in the 64-bit extra field, as for files beyond 4 GiB.
  void add(const std::string& name, const std::string& content, bool packed = false,
           bool long_sizes = false) {
    const std::string data = packed ? deflated(content) : content;
    const std::uint32_t crc = static_cast<std::uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())));
    const std::uint16_t method = packed ? 8 : 0;
    const std::string extra = long_sizes ? number16(1) + number16(16) +
                                               bytes_of_number(std::uint64_t{content.size()}) +
                                               bytes_of_number(std::uint64_t{data.size()})
                                         : "";
    const auto size = [&](std::size_t plain) {
      return bytes_of_number(long_sizes ? 0xFFFFFFFFu : static_cast<std::uint32_t>(plain));
    };
    const std::string shared = number16(method) + number16(0) + number16(0x21) + bytes_of_number(crc) +
                               size(data.size()) + size(content.size()) + number16(name.size()) +
                               number16(extra.size());
    const auto offset = static_cast<std::uint32_t>(file_.size());
    file_ += "PK\x03\x04" + number16(20) + number16(0) + shared + name + extra + data;
    directory_ += "PK\x01\x02" + number16(20) + number16(20) + number16(0) + shared + number16(0) +
                  number16(0) + number16(0) + bytes_of_number(std::uint32_t{0}) + bytes_of_number(offset) +
                  name + extra;
    ++count_;
  }
  std::string file(const std::string& comment = "") const {
    return file_ + directory_ + "PK\x05\x06" + number16(0) + number16(0) + number16(count_) +
           number16(count_) + bytes_of_number(static_cast<std::uint32_t>(directory_.size())) +
           bytes_of_number(static_cast<std::uint32_t>(file_.size())) + number16(comment.size()) + comment;
  }

 private:
  static std::string number16(std::size_t value) {
    return bytes_of_number(static_cast<std::uint16_t>(value));
  }
  static std::string deflated(const std::string& content) {
    z_stream stream{};
    deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    std::string packed(deflateBound(&stream, content.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
    stream.avail_in = static_cast<uInt>(content.size());
    stream.next_out = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_out = static_cast<uInt>(packed.size());
    deflate(&stream, Z_FINISH);
    packed.resize(packed.size() - stream.avail_out);
    deflateEnd(&stream);
    return packed;
  }

  std::string file_, directory_;
  std::size_t count_ = 0;
};

}  // namespace trainyard::test
