// NumPy's files: .npy, an array, and .npz, a zip archive whose members are .npy arrays, stored or deflated
// (numpy.lib.format, versions 1 to 3; APPNOTE.TXT of the zip format, with its 64-bit sizes).
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace datasets {

/// One array. Its elements are read in C order, whatever their order in the file. Copies share the elements.
class NpyArray {
 public:
  /// `place` is for messages. Throws DataError: no .npy, another number of bytes than its shape says, elements that
  /// are not integers, floating point of 2, 4 or 8 bytes, or truth values.
  NpyArray(std::string place, std::vector<std::uint8_t> bytes);
  /// Maps a file. An array in Fortran order is read into memory, where it then lies in C order.
  explicit NpyArray(const std::string& path);

  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::int64_t size() const { return size_; }
  bool is_floating() const { return kind_ == 'f'; }

  /// Element `i` in C order. integer() throws DataError for floating point, and for what 63 bits do not hold.
  double number(std::int64_t i) const;
  std::int64_t integer(std::int64_t i) const;
  /// Elements `first` to `first + count - 1`.
  void numbers(std::int64_t first, std::int64_t count, double* out) const;

  [[noreturn]] void fail(const std::string& message) const;

 private:
  void read(std::span<const std::uint8_t> bytes);
  void read_header(const std::string& text);
  void order_by_rows();
  template <class T>
  T at(std::int64_t i) const;

  std::string place_;
  std::shared_ptr<const void> owner_;  ///< of the elements
  std::span<const std::uint8_t> elements_;
  std::vector<std::int64_t> shape_;
  std::int64_t size_ = 1;
  bool by_columns_ = false;  ///< in the file: Fortran order
  bool swapped_ = false;     ///< big-endian
  char kind_ = 0;            ///< f, i, u or b
  int width_ = 0;            ///< bytes an element
};

class Npz {
 public:
  /// Reads the directory. Throws DataError where the file is truncated, or no zip archive.
  explicit Npz(std::string path);

  const std::string& path() const { return path_; }
  /// The first of `names` that is in the file; empty: none.
  std::string find(const std::vector<std::string>& names) const;
  /// Throws DataError, with what there is, where there is none of that name, and where its data is damaged.
  NpyArray read(const std::string& name);

  [[noreturn]] void fail(const std::string& message) const;

 private:
  struct Member {
    std::string name;  ///< without .npy
    std::uint16_t method = 0, flags = 0;
    std::uint32_t crc = 0;
    std::uint64_t packed = 0, size = 0, header = 0;
  };

  std::vector<std::uint8_t> bytes(std::uint64_t offset, std::uint64_t count, const std::string& what);
  void read_directory();
  void add_member(const std::uint8_t* entry, const std::string& name, const std::uint8_t* extra,
                  std::size_t extra_size);

  std::string path_;
  std::ifstream file_;
  std::uint64_t size_ = 0;
  std::vector<Member> members_;
};

/// The array of a .npy file, or that of this name of a .npz file, whatever the file is called.
NpyArray read_array(const std::string& path, const std::string& name);

}  // namespace datasets
