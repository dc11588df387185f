// Encodes the weights at the end, and looks whether they come back.
#include <ATen/ops/empty_like.h>

#include <trainyard/codec.hpp>
#include <trainyard/error.hpp>
#include <trainyard/hook.hpp>
#include <trainyard/host.hpp>
#include <trainyard/network.hpp>

namespace {

using namespace trainyard;

class Packing final : public Hook {
 public:
  struct Options {
    PluginList<Codec> codecs;
  };
  static void describe(Manifest<Options>& m) {
    m.name("packing").version("1.0.0").summary(
        "Encodes the weights at the end, and looks whether they come back.");
    m.option("codecs", &Options::codecs, "by which, each for itself").required();
    m.hook<&Packing::pack>(Event::fit_end);
  }
  explicit Packing(const Options& options) : options_(options) {}

  void pack(StepContext& context) {
    for (const std::unique_ptr<Codec>& codec : make_plugins(host(), options_.codecs)) {
      std::size_t before = 0, after = 0;
      for (const NamedTensor& each : context.network().parameters()) {
        const at::Tensor tensor = each.tensor.detach().contiguous(), back = at::empty_like(tensor);
        const TensorForm form{"F32", tensor.sizes()};
        std::vector<std::byte> code(codec->bound(form, tensor.nbytes()));
        code.resize(codec->encode(
            form, {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}, code));
        codec->decode(form, code, {static_cast<std::byte*>(back.mutable_data_ptr()), back.nbytes()});
        if (!back.equal(tensor)) throw PluginError(each.name + " did not come back");
        before += tensor.nbytes();
        after += code.size();
      }
      host().log(LogLevel::info, std::to_string(before) + " bytes are " + std::to_string(after));
    }
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Packing)
