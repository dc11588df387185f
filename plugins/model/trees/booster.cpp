#include "booster.hpp"

#include <xgboost/c_api.h>

#include <cstring>
#include <string_view>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <trainyard/error.hpp>

namespace trees {
namespace {

using namespace trainyard;

constexpr const char* outputs_key = "trainyard_outputs";
constexpr const char* as_margins =
    R"({"type": 1, "training": false, "iteration_begin": 0, "iteration_end": 0, "strict_shape": true,)"
    R"( "cache_id": 0, "missing": NaN})";

/// The last message without the place in XGBoost's sources and the stack that follow it.
std::string message() {
  std::string_view text = XGBGetLastError();
  text = text.substr(0, text.find("Stack trace"));
  if (const std::size_t check = text.find("Check failed"); check != text.npos) text.remove_prefix(check);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return std::string(text);
}

void require(int status) {
  if (status != 0) throw PluginError("XGBoost says: " + message());
}

/// What XGBoost reads a tensor by (NumPy's array interface).
std::string array(const at::Tensor& rows) {
  return "{\"data\": [" + std::to_string(reinterpret_cast<std::uintptr_t>(rows.const_data_ptr<float>())) +
         ", true], \"shape\": [" + std::to_string(rows.size(0)) + ", " + std::to_string(rows.size(1)) +
         R"(], "typestr": "<f4", "version": 3})";
}

std::shared_ptr<void> create() {
  BoosterHandle handle = nullptr;
  require(XGBoosterCreate(nullptr, 0, &handle));
  return {handle, [](void* each) { XGBoosterFree(each); }};
}

/// A copy of a result, which belongs to the booster until its next one.
at::Tensor copied(const float* result, std::int64_t rows, std::int64_t outputs) {
  at::Tensor copy = at::empty({rows, outputs}, at::kFloat);
  if (copy.numel() > 0) std::memcpy(copy.mutable_data_ptr<float>(), result, copy.nbytes());
  return copy;
}

}  // namespace

Matrix::Matrix(const at::Tensor& rows, int threads) : size_(rows.size(0)) {
  DMatrixHandle handle = nullptr;
  const std::string config = R"({"missing": NaN, "nthread": )" + std::to_string(threads) + "}";
  require(XGDMatrixCreateFromDense(array(rows).c_str(), config.c_str(), &handle));
  handle_ = {handle, [](void* each) { XGDMatrixFree(each); }};
}

/// XGBoost draws the features of a tree itself, by a generator whose state it does not save. Weights decide it instead:
/// as many are heavy as a tree sees, and a light one would be drawn once in 2^32 times.
void Matrix::see(const std::vector<std::uint8_t>& features) {
  constexpr float heavy = 1e30F, light = 1e-6F;
  std::vector<float> weights(features.size());
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = features[i] != 0 ? heavy : light;
  require(
      XGDMatrixSetDenseInfo(handle_.get(), "feature_weights", weights.data(), weights.size(), /*float=*/1));
}

Booster::Booster(std::int64_t outputs) : handle_(create()), outputs_(outputs) {
  require(XGBoosterSetAttr(handle_.get(), outputs_key, std::to_string(outputs).c_str()));
}

Booster::Booster(const at::Tensor& bytes, std::int64_t outputs) : handle_(create()), outputs_(outputs) {
  const at::Tensor whole = bytes.contiguous();
  if (XGBoosterLoadModelFromBuffer(handle_.get(), whole.const_data_ptr(), whole.nbytes()) != 0)
    throw DataError("the weights hold no trees that XGBoost can read: " + message());
  const char* saved = nullptr;
  int found = 0;
  require(XGBoosterGetAttr(handle_.get(), outputs_key, &saved, &found));
  if (found == 0 || std::to_string(outputs) != saved)
    throw ConfigError("the trees are of a model with " +
                      std::string(found == 0 ? "an unknown number of" : saved) + " outputs, this one has " +
                      std::to_string(outputs) +
                      ": give the model the data and the options that they were grown with");
}

void Booster::set(const std::string& name, const std::string& value) {
  require(XGBoosterSetParam(handle_.get(), name.c_str(), value.c_str()));
}

void Booster::grow(const Matrix& matrix, const at::Tensor& gradient, const at::Tensor& hessian) {
  require(XGBoosterBoostOneIter(handle_.get(), matrix.handle(), gradient.mutable_data_ptr<float>(),
                                hessian.mutable_data_ptr<float>(), static_cast<bst_ulong>(gradient.numel())));
}

at::Tensor Booster::margins(const Matrix& matrix) const {
  const bst_ulong* shape = nullptr;
  bst_ulong dimensions = 0;
  const float* result = nullptr;
  require(
      XGBoosterPredictFromDMatrix(handle_.get(), matrix.handle(), as_margins, &shape, &dimensions, &result));
  return copied(result, matrix.size(), outputs_);
}

at::Tensor Booster::predict(const at::Tensor& rows) const {
  const bst_ulong* shape = nullptr;
  bst_ulong dimensions = 0;
  const float* result = nullptr;
  require(XGBoosterPredictFromDense(handle_.get(), array(rows).c_str(), as_margins, nullptr, &shape,
                                    &dimensions, &result));
  return copied(result, rows.size(0), outputs_);
}

void Booster::save(at::Tensor& bytes) const {
  bst_ulong size = 0;
  const char* data = nullptr;
  require(XGBoosterSaveModelToBuffer(handle_.get(), R"({"format": "ubj"})", &size, &data));
  const c10::NoGradGuard untracked;
  bytes.resize_({static_cast<std::int64_t>(size)});
  std::memcpy(bytes.mutable_data_ptr(), data, size);
  bytes.unsafeGetTensorImpl()->bump_version();
}

std::int64_t Booster::rounds() const {
  int rounds = 0;
  require(XGBoosterBoostedRounds(handle_.get(), &rounds));
  return rounds;
}

std::int64_t Booster::features() const {
  bst_ulong features = 0;
  require(XGBoosterGetNumFeature(handle_.get(), &features));
  return static_cast<std::int64_t>(features);
}

}  // namespace trees
