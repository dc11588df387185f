#include "arrays.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>

#include <c10/util/Half.h>

#include <trainyard/error.hpp>

#include "../files.hpp"
#include "../mapped.hpp"

namespace datasets {
namespace {

template <class T>
T little_endian(const std::uint8_t* bytes) {
  T value;  // all machines that this runs on are
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

constexpr std::uint32_t end_mark = 0x06054b50, end64_mark = 0x06064b50, locator64_mark = 0x07064b50,
                        entry_mark = 0x02014b50, local_mark = 0x04034b50;
constexpr std::size_t end_size = 22, end64_size = 56, locator64_size = 20, entry_size = 46, local_size = 30;

/// What follows `key` in the header's dictionary, blanks left out; empty: it is not there.
std::string_view value_of(std::string_view header, std::string_view key) {
  std::size_t at = header.find("'" + std::string(key) + "'");
  if (at == std::string_view::npos) return {};
  at = header.find(':', at);
  if (at == std::string_view::npos) return {};
  at = header.find_first_not_of(' ', at + 1);
  return at == std::string_view::npos ? std::string_view{} : header.substr(at);
}

std::vector<std::uint8_t> inflated(std::vector<std::uint8_t> packed, std::uint64_t size, bool& sound) {
  // Deflate makes at most 1032 bytes of one: memory follows what the file holds, not what it promises.
  std::vector<std::uint8_t> out(std::min<std::uint64_t>(size, packed.size() * 1032 + 1));
  z_stream stream{};
  sound = inflateInit2(&stream, -MAX_WBITS) == Z_OK;
  std::size_t used = 0, made = 0;
  int code = Z_OK;
  constexpr std::size_t most = 1 << 30;
  while (sound && code == Z_OK) {
    stream.next_in = packed.data() + used;
    stream.avail_in = static_cast<uInt>(std::min(most, packed.size() - used));
    stream.next_out = out.data() + made;
    stream.avail_out = static_cast<uInt>(std::min(most, out.size() - made));
    const std::size_t before_in = stream.avail_in, before_out = stream.avail_out;
    code = inflate(&stream, Z_NO_FLUSH);
    used += before_in - stream.avail_in;
    made += before_out - stream.avail_out;
  }
  inflateEnd(&stream);
  sound = sound && code == Z_STREAM_END && made == size;
  return out;
}

}  // namespace

NpyArray::NpyArray(std::string place, std::vector<std::uint8_t> bytes) : place_(std::move(place)) {
  const auto held = std::make_shared<const std::vector<std::uint8_t>>(std::move(bytes));
  owner_ = held;
  read(*held);
}

NpyArray::NpyArray(const std::string& path) : place_(path) {
  const std::shared_ptr<const trainyard::lib::Mapping> file = map_file(path);
  owner_ = file;
  read({file->data(), file->size()});
}

void NpyArray::read(std::span<const std::uint8_t> bytes) {
  constexpr char magic[] = "\x93NUMPY";
  if (bytes.size() < 10 || std::memcmp(bytes.data(), magic, 6) != 0) fail("it is no .npy array");
  const int version = bytes[6];
  if (version < 1 || version > 3) fail("it is .npy version " + std::to_string(version) + ", expected 1 to 3");
  const std::size_t prefix = version == 1 ? 10 : 12;
  if (bytes.size() < prefix) fail("its header is truncated");
  const std::size_t length =
      version == 1 ? little_endian<std::uint16_t>(&bytes[8]) : little_endian<std::uint32_t>(&bytes[8]);
  if (bytes.size() - prefix < length) fail("its header is truncated");
  const std::span<const std::uint8_t> header = bytes.subspan(prefix, length);
  read_header(std::string(header.begin(), header.end()));
  elements_ = bytes.subspan(prefix + length);
  const auto expected = static_cast<std::size_t>(size_) * static_cast<std::size_t>(width_);
  if (elements_.size() != expected)
    fail("it has " + std::to_string(elements_.size()) + " bytes, expected " + std::to_string(expected) +
         " for its shape: is it cut off?");
  if (by_columns_ && shape_.size() > 1) order_by_rows();
}

/// Moves the elements of an array in Fortran order, where the first index runs fastest, into C order, where the last
/// one does.
void NpyArray::order_by_rows() {
  const auto width = static_cast<std::size_t>(width_);
  std::vector<std::size_t> strides;  // of each index in Fortran order, in bytes
  std::size_t stride = width;
  for (const std::int64_t length : shape_) {
    strides.push_back(stride);
    stride *= static_cast<std::size_t>(length);
  }
  const auto rows = std::make_shared<std::vector<std::uint8_t>>(elements_.size());
  std::vector<std::int64_t> index(shape_.size(), 0);
  const std::uint8_t* from = elements_.data();
  std::uint8_t* out = rows->data();
  for (std::int64_t i = 0; i < size_; ++i, out += width) {
    std::memcpy(out, from, width);
    for (std::size_t axis = shape_.size(); axis-- > 0;) {
      from += strides[axis];
      if (++index[axis] < shape_[axis]) break;
      from -= strides[axis] * static_cast<std::size_t>(shape_[axis]);
      index[axis] = 0;
    }
  }
  owner_ = rows;
  elements_ = *rows;
}

void NpyArray::read_header(const std::string& text) {
  const std::string_view type = value_of(text, "descr"), order = value_of(text, "fortran_order");
  std::string_view shape = value_of(text, "shape");
  const bool plain =
      type.size() > 4 && type[0] == '\'' && type[4] == '\'' && type[3] >= '1' && type[3] <= '8';
  kind_ = plain ? type[2] : '\0';
  width_ = plain ? type[3] - '0' : 0;
  const bool power = width_ == 1 || width_ == 2 || width_ == 4 || width_ == 8;
  const bool known =
      (kind_ == 'f' && width_ >= 2) || kind_ == 'i' || kind_ == 'u' || (kind_ == 'b' && width_ == 1);
  const bool ordered = plain && (type[1] == '<' || type[1] == '>' || width_ == 1);
  if (!ordered || !power || !known)
    fail("its type is " +
         std::string(type.substr(0, std::min(type.find(", 'fortran_order'"), std::size_t{60}))) +
         ", expected integers, floating point of at most 8 bytes or truth values: save it as one of these");
  swapped_ = type[1] == '>' && width_ > 1;
  if (!shape.starts_with('(')) fail("its header says no shape");
  shape = shape.substr(1, shape.find(')') - 1);
  constexpr std::int64_t most = std::int64_t{1} << 48;
  for (;;) {
    shape.remove_prefix(std::min(shape.find_first_not_of(" ,L"), shape.size()));
    if (shape.empty()) break;
    std::int64_t length = 0;
    const auto [end, error] = std::from_chars(shape.data(), shape.data() + shape.size(), length);
    if (error != std::errc{} || length < 0 || (length > 0 && size_ > most / length))
      fail("its header says no shape");
    shape_.push_back(length);
    size_ *= length;
    shape.remove_prefix(static_cast<std::size_t>(end - shape.data()));
  }
  by_columns_ = order.starts_with("True");
  if (!by_columns_ && !order.starts_with("False")) fail("its header says no order of its elements");
}

template <class T>
T NpyArray::at(std::int64_t i) const {
  std::array<std::uint8_t, sizeof(T)> bytes;
  std::memcpy(bytes.data(), elements_.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
  if (swapped_) std::reverse(bytes.begin(), bytes.end());
  return std::bit_cast<T>(bytes);
}

double NpyArray::number(std::int64_t i) const {
  double value = 0.0;
  numbers(i, 1, &value);
  return value;
}

void NpyArray::numbers(std::int64_t first, std::int64_t count, double* out) const {
  const auto copy = [&]<class T>(T) {
    for (std::int64_t i = first; i < first + count; ++i) *out++ = static_cast<double>(at<T>(i));
  };
  if (kind_ == 'f' && width_ == 2) {
    for (std::int64_t i = first; i < first + count; ++i)
      *out++ =
          static_cast<double>(static_cast<float>(c10::Half(at<std::uint16_t>(i), c10::Half::from_bits())));
    return;
  }
  if (kind_ == 'f') return width_ == 4 ? copy(float{}) : copy(double{});
  const bool negative = kind_ == 'i';
  switch (width_) {
    case 1: return negative ? copy(std::int8_t{}) : copy(std::uint8_t{});
    case 2: return negative ? copy(std::int16_t{}) : copy(std::uint16_t{});
    case 4: return negative ? copy(std::int32_t{}) : copy(std::uint32_t{});
    default: return negative ? copy(std::int64_t{}) : copy(std::uint64_t{});
  }
}

std::int64_t NpyArray::integer(std::int64_t i) const {
  if (kind_ == 'f') fail("it has floating point, expected integers");
  const bool negative = kind_ == 'i';
  switch (width_) {
    case 1: return negative ? at<std::int8_t>(i) : std::int64_t{at<std::uint8_t>(i)};
    case 2: return negative ? at<std::int16_t>(i) : std::int64_t{at<std::uint16_t>(i)};
    case 4: return negative ? at<std::int32_t>(i) : std::int64_t{at<std::uint32_t>(i)};
    default: break;
  }
  const auto value = at<std::int64_t>(i);
  if (!negative && value < 0) fail("element " + std::to_string(i) + " is 2^63 or more");
  return value;
}

void NpyArray::fail(const std::string& message) const {
  throw trainyard::DataError(place_ + ": " + message);
}

Npz::Npz(std::string path) : path_(std::move(path)), file_(path_, std::ios::binary | std::ios::ate) {
  if (!file_) {
    const int reason = errno;  // of a folder it depends on the file system
    fail(std::filesystem::is_directory(path_) ? "it is a folder, no file" : std::strerror(reason));
  }
  const auto end = static_cast<std::streamoff>(file_.tellg());
  if (end < 0 || end == std::numeric_limits<std::streamoff>::max()) fail("it is no file that can be read");
  size_ = static_cast<std::uint64_t>(end);
  read_directory();
}

std::string Npz::find(const std::vector<std::string>& names) const {
  for (const std::string& name : names)
    if (std::any_of(members_.begin(), members_.end(), [&](const Member& each) { return each.name == name; }))
      return name;
  return {};
}

std::vector<std::uint8_t> Npz::bytes(std::uint64_t offset, std::uint64_t count, const std::string& what) {
  if (offset > size_ || count > size_ - offset) fail(what + " is truncated: fetch the file again");
  std::vector<std::uint8_t> found(count);
  file_.seekg(static_cast<std::streamoff>(offset));
  file_.read(reinterpret_cast<char*>(found.data()), static_cast<std::streamsize>(count));
  if (!file_) fail(what + " cannot be read");
  files::tell_read(count);
  return found;
}

void Npz::read_directory() {
  // It is found from the end of the file, where a comment of up to 64 KiB may follow.
  const std::uint64_t tail_size = std::min<std::uint64_t>(size_, 65535 + end_size);
  const std::vector<std::uint8_t> tail = bytes(size_ - tail_size, tail_size, "the file");
  std::size_t at = tail.size() < end_size ? 0 : tail.size() - end_size + 1;
  while (at > 0 && little_endian<std::uint32_t>(&tail[at - 1]) != end_mark) --at;
  if (at-- == 0) fail("it is truncated, or no .npz file: there is no end of a zip directory");
  std::uint64_t count = little_endian<std::uint16_t>(&tail[at + 10]);
  std::uint64_t length = little_endian<std::uint32_t>(&tail[at + 12]);
  std::uint64_t offset = little_endian<std::uint32_t>(&tail[at + 16]);
  if (at >= locator64_size && little_endian<std::uint32_t>(&tail[at - locator64_size]) == locator64_mark) {
    const auto place = little_endian<std::uint64_t>(&tail[at - locator64_size + 8]);
    const std::vector<std::uint8_t> end64 = bytes(place, end64_size, "the zip directory");
    if (little_endian<std::uint32_t>(end64.data()) != end64_mark) fail("its zip directory is damaged");
    count = little_endian<std::uint64_t>(&end64[32]);
    length = little_endian<std::uint64_t>(&end64[40]);
    offset = little_endian<std::uint64_t>(&end64[48]);
  }
  const std::vector<std::uint8_t> directory = bytes(offset, length, "the zip directory");
  std::size_t next = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint8_t* entry = directory.data() + next;
    if (directory.size() - next < entry_size || little_endian<std::uint32_t>(entry) != entry_mark)
      fail("its zip directory is damaged");
    const std::size_t name_size = little_endian<std::uint16_t>(entry + 28),
                      extra_size = little_endian<std::uint16_t>(entry + 30),
                      comment_size = little_endian<std::uint16_t>(entry + 32);
    const std::size_t whole = entry_size + name_size + extra_size + comment_size;
    if (directory.size() - next < whole) fail("its zip directory is damaged");
    add_member(entry, std::string(reinterpret_cast<const char*>(entry) + entry_size, name_size),
               entry + entry_size + name_size, extra_size);
    next += whole;
  }
}

void Npz::add_member(const std::uint8_t* entry, const std::string& name, const std::uint8_t* extra,
                     std::size_t extra_size) {
  Member member;
  member.name = name.ends_with(".npy") ? name.substr(0, name.size() - 4) : name;
  member.flags = little_endian<std::uint16_t>(entry + 8);
  member.method = little_endian<std::uint16_t>(entry + 10);
  member.crc = little_endian<std::uint32_t>(entry + 16);
  member.packed = little_endian<std::uint32_t>(entry + 20);
  member.size = little_endian<std::uint32_t>(entry + 24);
  member.header = little_endian<std::uint32_t>(entry + 42);
  // The 64-bit extra field holds, in this order, those that did not fit.
  for (std::size_t at = 0; at + 4 <= extra_size;) {
    const std::size_t length = little_endian<std::uint16_t>(extra + at + 2);
    std::size_t value = at + 4, end = value + length;
    if (little_endian<std::uint16_t>(extra + at) == 1 && end <= extra_size)
      for (std::uint64_t* field : {&member.size, &member.packed, &member.header})
        if (*field == 0xFFFFFFFF && value + 8 <= end) {
          *field = little_endian<std::uint64_t>(extra + value);
          value += 8;
        }
    at = end;
  }
  members_.push_back(std::move(member));
}

NpyArray Npz::read(const std::string& name) {
  const auto found =
      std::find_if(members_.begin(), members_.end(), [&](const Member& each) { return each.name == name; });
  if (found == members_.end()) {
    std::string names;
    for (const Member& each : members_) names += (names.empty() ? "" : ", ") + each.name;
    fail("there is no array " + name + "; it has " + (names.empty() ? "none" : names));
  }
  const std::string place = path_ + ": array " + name;
  const auto broken = [&](const std::string& message) { throw trainyard::DataError(place + ": " + message); };
  if ((found->flags & 1) != 0) broken("it is encrypted");
  if (found->method != 0 && found->method != 8)
    broken("it is packed by zip method " + std::to_string(found->method) +
           ", expected stored or deflated: save it by numpy.savez or numpy.savez_compressed");
  const std::vector<std::uint8_t> local = bytes(found->header, local_size, "array " + name);
  if (little_endian<std::uint32_t>(local.data()) != local_mark) broken("its zip header is damaged");
  const std::uint64_t begin = found->header + local_size + little_endian<std::uint16_t>(&local[26]) +
                              little_endian<std::uint16_t>(&local[28]);
  std::vector<std::uint8_t> content = bytes(begin, found->packed, "array " + name);
  bool sound = found->method == 8 || found->packed == found->size;
  if (found->method == 8) content = inflated(std::move(content), found->size, sound);
  if (!sound || crc32_z(0, content.data(), content.size()) != found->crc)
    broken("its data is damaged: fetch the file again");
  return {place, std::move(content)};
}

void Npz::fail(const std::string& message) const {
  throw trainyard::DataError(path_ + ": " + message);
}

NpyArray read_array(const std::string& path, const std::string& name) {
  std::array<char, 2> magic{};
  std::ifstream(path, std::ios::binary).read(magic.data(), magic.size());
  if (magic != std::array{'P', 'K'}) return NpyArray(path);
  return Npz(path).read(name);
}

}  // namespace datasets
