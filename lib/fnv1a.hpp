// Hashes text to tell it from other text; no protection against somebody who wants two to be equal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/printed.hpp"

namespace trainyard::lib {

/// Computes the 64 bits of FNV-1a.
class Fnv1a {
 public:
  Fnv1a& update(std::string_view bytes) {
    for (const char byte : bytes) hash_ = (hash_ ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
    return *this;
  }
  /// Returns 16 hexadecimal digits.
  std::string hex() const { return printed("%016llx", static_cast<unsigned long long>(hash_)); }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace trainyard::lib
