// Computes SHA-256, and writes bytes as hexadecimal text.
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace trainyard::lib {

inline std::string hex_of(std::string_view bytes) {
  constexpr const char* digits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) (text += digits[byte >> 4]) += digits[byte & 15];
  return text;
}

/// Hidden, so that a library which exports its own names has none of these in its table of symbols.
class [[gnu::visibility("hidden")]] Sha256 {
 public:
  Sha256() {
    require(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }

  void update(const void* bytes, std::size_t size) {
    require(EVP_DigestUpdate(context_.get(), bytes, size) == 1);
  }

  /// Returns 64 lower-case hexadecimal digits. The object cannot be used afterwards.
  std::string hex() {
    unsigned char digest[32];
    require(EVP_DigestFinal_ex(context_.get(), digest, nullptr) == 1);
    return hex_of({reinterpret_cast<const char*>(digest), sizeof digest});
  }

  static std::string of(std::string_view bytes) {
    Sha256 hash;
    hash.update(bytes.data(), bytes.size());
    return hash.hex();
  }

 private:
  static void require(bool ok) {
    if (!ok) throw std::runtime_error("OpenSSL cannot compute SHA-256");
  }
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_{EVP_MD_CTX_new()};
};

}  // namespace trainyard::lib
