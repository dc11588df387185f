#include "torch_file.hpp"

#include <functional>

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <trainyard/error.hpp>

#include "lib/new_file.hpp"

namespace {

using namespace trainyard;

/// A zip with the pickled dictionary, in which tensors are named by number, and their bytes by these. LibTorch's own
/// pickle_save() would tag the dictionary with its TorchScript type, which a load of weights alone refuses.
void write(const std::string& path, const std::vector<NamedTensor>& tensors) {
  c10::Dict<std::string, at::Tensor> dictionary;
  for (const auto& [name, tensor] : tensors) dictionary.insert(name, tensor);
  std::string pickled;
  torch::jit::Pickler pickler([&](const char* bytes, std::size_t size) { pickled.append(bytes, size); },
                              nullptr, nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(dictionary);
  pickler.stop();
  caffe2::serialize::PyTorchStreamWriter file(path);
  file.writeRecord("data.pkl", pickled.data(), pickled.size());
  std::size_t number = 0;
  for (const at::Tensor& tensor : pickler.tensorData())
    file.writeRecord("data/" + std::to_string(number++), tensor.const_data_ptr(), tensor.nbytes());
  file.writeEndOfFile();
}

}  // namespace

void write_torch(const std::string& path, const std::vector<NamedTensor>& tensors) {
  lib::NewFile made(path);
  try {
    write(made.temporary(), tensors);
    if (const auto failure = made.put_in_place()) throw DataError(failure->what);
  } catch (const std::exception& error) {
    const std::string why = error.what();
    throw DataError(path + ": cannot be written: " + why.substr(0, why.find('\n')));
  }
}
