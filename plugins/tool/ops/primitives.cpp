#include "primitives.hpp"

#include <unordered_map>

#include <dnnl.hpp>

#include <trainyard/error.hpp>

namespace ops {
namespace {

using dnnl::memory;

struct Types {
  memory::data_type input, weight, bias, output;
};

Types types_of(const Operator& p) {
  using T = memory::data_type;
  if (p.type == "fp32") return {T::f32, T::f32, T::f32, T::f32};
  if (p.type == "bf16") return {T::bf16, T::bf16, T::f32, T::bf16};
  if (p.type == "int8") return {T::u8, T::s8, T::f32, T::u8};
  throw trainyard::ConfigError("oneDNN is tried with fp32, bf16 and int8, not with " + p.type);
}

dnnl::engine& engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

memory filled(const memory::desc& layout) {
  memory made(layout, engine());
  // Zeros are as much work as any other numbers, but no denormal ones.
  std::fill_n(static_cast<char*>(made.get_data_handle()), layout.get_size(), char{0});
  return made;
}

template <class Description>
std::function<void()> call_of(const Description& made) {
  std::unordered_map<int, memory> arguments = {{DNNL_ARG_SRC, filled(made.src_desc())},
                                               {DNNL_ARG_WEIGHTS, filled(made.weights_desc())},
                                               {DNNL_ARG_BIAS, filled(made.bias_desc())},
                                               {DNNL_ARG_DST, filled(made.dst_desc())}};
  return [primitive = dnnl::primitive(made), stream = dnnl::stream(engine()),
          arguments = std::move(arguments)]() mutable {
    primitive.execute(stream, arguments);
    stream.wait();
  };
}

std::function<void()> convolution(const Operator& p) {
  const Types type = types_of(p);
  const auto any = memory::format_tag::any;
  const std::int64_t padding = p.kernel / 2, edge = (p.size + 2 * padding - p.kernel) / p.stride + 1;
  const memory::desc input({p.batch, p.in, p.size, p.size}, type.input, any);
  const memory::dims shape =
      p.groups == 1 ? memory::dims{p.out, p.in, p.kernel, p.kernel}
                    : memory::dims{p.groups, p.out / p.groups, p.in / p.groups, p.kernel, p.kernel};
  const memory::desc weight(shape, type.weight, any), bias({p.out}, type.bias, memory::format_tag::a),
      output({p.batch, p.out, edge, edge}, type.output, any);
  return call_of(dnnl::convolution_forward::primitive_desc(
      engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_auto, input, weight, bias,
      output, {p.stride, p.stride}, {padding, padding}, {padding, padding}));
}

std::function<void()> linear(const Operator& p) {
  const Types type = types_of(p);
  const auto any = memory::format_tag::any;
  return call_of(dnnl::inner_product_forward::primitive_desc(
      engine(), dnnl::prop_kind::forward_inference, memory::desc({p.batch, p.in}, type.input, any),
      memory::desc({p.out, p.in}, type.weight, any), memory::desc({p.out}, type.bias, memory::format_tag::a),
      memory::desc({p.batch, p.out}, type.output, any)));
}

}  // namespace

std::function<void()> primitive_of(const Operator& p) {
  try {
    if (p.phase == "forward" && p.op == "conv") return convolution(p);
    if (p.phase == "forward" && p.op == "linear") return linear(p);
  } catch (const dnnl::error& error) {
    throw trainyard::ConfigError("oneDNN has no " + p.op + " of " + p.type +
                                 " on this processor: " + error.what());
  }
  throw trainyard::ConfigError("oneDNN is tried with conv and linear, forward, not with " + p.op + ", " +
                               p.phase);
}

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch);
}

}  // namespace ops
