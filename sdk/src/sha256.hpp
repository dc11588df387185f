// SHA-256 of bytes, and of the content of a State.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include <ATen/core/Tensor.h>
#include <openssl/evp.h>

#include <trainyard/error.hpp>
#include <trainyard/state.hpp>

namespace trainyard {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    check(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void add(const void* bytes, std::size_t size) { check(EVP_DigestUpdate(context_.get(), bytes, size) == 1); }
  void add(std::int64_t number) { add(&number, sizeof number); }
  /// Adds the length first, so that neighbouring texts cannot be confused.
  void add(std::string_view text) {
    add(static_cast<std::int64_t>(text.size()));
    add(text.data(), text.size());
  }
  void add(const at::Tensor& tensor) {
    const at::Tensor plain = tensor.detach().to(at::kCPU).contiguous();
    add(std::string_view(c10::toString(plain.scalar_type())));
    add(plain.dim());
    for (const std::int64_t size : plain.sizes()) add(size);
    add(plain.const_data_ptr(), plain.nbytes());
  }
  void add(const Scalar& value) {
    add(static_cast<std::int64_t>(value.index()));
    if (const auto* text = std::get_if<std::string>(&value))
      add(std::string_view(*text));
    else if (const auto* number = std::get_if<double>(&value))
      add(number, sizeof *number);
    else if (const auto* integer = std::get_if<std::int64_t>(&value))
      add(*integer);
    else
      add(static_cast<std::int64_t>(std::get<bool>(value)));
  }
  std::string hex() {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    check(EVP_DigestFinal_ex(context_.get(), bytes, &size) == 1);
    std::string text;
    for (unsigned i = 0; i < size; ++i) {
      text += "0123456789abcdef"[bytes[i] >> 4];
      text += "0123456789abcdef"[bytes[i] & 15];
    }
    return text;
  }

 private:
  static void check(bool done) {
    if (!done) throw Error(ExitCode::internal, "OpenSSL cannot compute SHA-256");
  }
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace trainyard
