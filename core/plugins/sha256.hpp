// SHA-256 as hex text.
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace trainyard::plugins {

class Sha256 {
 public:
  Sha256() { require(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1); }

  void update(const void* bytes, std::size_t size) {
    require(EVP_DigestUpdate(context_.get(), bytes, size) == 1);
  }

  /// 64 lower-case hexadecimal digits. Ends the object's use.
  std::string hex() {
    std::array<unsigned char, 32> digest;
    require(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1);
    std::string text;
    for (const unsigned char byte : digest) {
      text += "0123456789abcdef"[byte >> 4];
      text += "0123456789abcdef"[byte & 15];
    }
    return text;
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

}  // namespace trainyard::plugins
