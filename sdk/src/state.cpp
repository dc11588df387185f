#include <trainyard/state.hpp>

#include <memory>

#include <openssl/evp.h>

#include <trainyard/error.hpp>

namespace trainyard {
namespace {

const char* type_name(const Scalar& value) {
  constexpr const char* names[] = {"a boolean", "an integer", "a number", "a text"};
  return names[value.index()];
}

std::string label(const State& state, std::string_view name) {
  return "state of " + (state.owner.empty() ? std::string("a plugin") : state.owner) + ": \"" +
         std::string(name) + "\"";
}

template <class T>
const T& get(const State& state, std::string_view name, const Scalar& value) {
  if (const T* found = std::get_if<T>(&value)) return *found;
  throw PluginError(label(state, name) + " is " + type_name(value) + ", not " + type_name(Scalar(T{})));
}

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    check(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void add(const void* bytes, std::size_t size) { check(EVP_DigestUpdate(context_.get(), bytes, size) == 1); }
  void add(std::int64_t number) { add(&number, sizeof number); }
  /// Length first, so that neighbouring texts cannot be confused.
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

}  // namespace

void StateWriter::scalar(std::string name, Scalar value) {
  if (!state_->scalars.emplace(name, std::move(value)).second)
    throw PluginError(label(*state_, name) + " is written twice");
}

void StateWriter::tensor(std::string name, const at::Tensor& tensor) {
  if (!tensor.defined()) throw PluginError(label(*state_, name) + " is an undefined tensor");
  if (!state_->tensors.emplace(name, tensor).second)
    throw PluginError(label(*state_, name) + " is written twice");
}

const Scalar& StateReader::scalar(std::string_view name) const {
  const auto found = state_->scalars.find(name);
  if (found == state_->scalars.end())
    throw PluginError(label(*state_, name) + " is missing (a scalar; saved by version " + version() + ")");
  return found->second;
}

std::int64_t StateReader::integer(std::string_view name) const {
  return get<std::int64_t>(*state_, name, scalar(name));
}
double StateReader::number(std::string_view name) const {
  return get<double>(*state_, name, scalar(name));
}
bool StateReader::boolean(std::string_view name) const {
  return get<bool>(*state_, name, scalar(name));
}
const std::string& StateReader::text(std::string_view name) const {
  return get<std::string>(*state_, name, scalar(name));
}

const at::Tensor& StateReader::tensor(std::string_view name) const {
  const auto found = state_->tensors.find(name);
  if (found == state_->tensors.end())
    throw PluginError(label(*state_, name) + " is missing (a tensor; saved by version " + version() + ")");
  return found->second;
}

std::string digest(const at::Tensor& tensor) {
  Sha256 hash;
  hash.add(tensor);
  return hash.hex();
}

std::string digest(const State& state) {
  Sha256 hash;
  hash.add(static_cast<std::int64_t>(state.scalars.size()));
  for (const auto& [name, value] : state.scalars) {
    hash.add(std::string_view(name));
    hash.add(value);
  }
  hash.add(static_cast<std::int64_t>(state.tensors.size()));
  for (const auto& [name, tensor] : state.tensors) {
    hash.add(std::string_view(name));
    hash.add(tensor);
  }
  return hash.hex();
}

}  // namespace trainyard
