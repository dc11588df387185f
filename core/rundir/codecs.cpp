#include "core/rundir/codecs.hpp"

#include <map>
#include <memory>
#include <span>

#include <trainyard/codec.hpp>
#include <trainyard/error.hpp>

#include "core/plugins/loader.hpp"

namespace trainyard::checkpoint {
namespace {

std::function<plugins::Registry()>& registry_of_codecs() {
  static std::function<plugins::Registry()> registry;
  return registry;
}

/// Returns the codec of that name, made with its defaults: a code says itself how it is to be read.
const Codec& codec_named(const std::string& name) {
  static std::map<std::string, plugins::LoadedPlugin::Instance> made;
  if (const auto known = made.find(name); known != made.end())
    return static_cast<const Codec&>(*known->second.plugin);
  const plugins::Registry registry = registry_of_codecs() ? registry_of_codecs()() : plugins::Registry();
  const std::vector<const plugins::PluginFile*> files = registry.find(Codec::kind.name, name);
  if (files.empty())
    throw DataError("it was stored by the codec \"" + name +
                    "\", which is not among the plugins here: put its file, lib" + name +
                    ".so, into a folder of TRAINYARD_PLUGINS");
  plugins::LoadedPlugin::Instance instance = plugins::load(*files.front()).create({});
  return static_cast<const Codec&>(*made.emplace(name, std::move(instance)).first->second.plugin);
}

}  // namespace

void find_codecs_in(std::function<plugins::Registry()> registry) {
  registry_of_codecs() = std::move(registry);
}

void find_codecs_in(const plugins::Registry& registry) {
  std::vector<plugins::PluginFile> codecs;
  for (const plugins::PluginFile& each : registry.files())
    if (each.manifest.kind == Codec::kind.name) codecs.push_back(each);
  find_codecs_in([found = plugins::Registry(std::move(codecs))] { return found; });
}

std::string decoded(const TensorEntry& tensor, std::string_view code, const std::string& path) try {
  std::string bytes(tensor.size, '\0');
  codec_named(tensor.codec)
      .decode({tensor.dtype, tensor.shape}, std::as_bytes(std::span(code)),
              std::as_writable_bytes(std::span(bytes)));
  return bytes;
} catch (const Error& error) {
  throw DataError(path + ": tensor \"" + stored_name(tensor.owner, tensor.name) + "\": " + error.what());
}

}  // namespace trainyard::checkpoint
