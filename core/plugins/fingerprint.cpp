#include "core/plugins/fingerprint.hpp"

namespace trainyard::plugins {
namespace {

struct Field {
  const char* key;
  const char* what;
  const char* Fingerprint::*member;
  const char* mend;
};

constexpr Field fields[] = {
    {"sdk", "SDK", &Fingerprint::sdk,
     "rebuild it against this host's installation (find_package(Trainyard))"},
    {"libtorch", "LibTorch", &Fingerprint::libtorch,
     "rebuild it with TRAINYARD_LIBTORCH set to the host's LibTorch"},
    {"compiler", "C++ ABI", &Fingerprint::compiler,
     "rebuild it as C++20 with GCC or Clang, as trainyard_add_plugin does"},
    {"library", "standard library", &Fingerprint::library,
     "rebuild it without -D_GLIBCXX_DEBUG and -D_GLIBCXX_USE_CXX11_ABI, or the host with the same"},
    {"isa", "instruction set", &Fingerprint::isa,
     "rebuild it without -march or -m flags; wide code belongs into kernels that test the CPU"},
};

std::string value_of(const BuildFacts& facts, const char* key) {
  const auto found = facts.find(key);
  return found == facts.end() ? "(not stated)" : found->second;
}

}  // namespace

BuildFacts build_facts(const Fingerprint& fingerprint) {
  BuildFacts facts;
  for (const Field& field : fields) {
    const char* text = fingerprint.*field.member;
    facts[field.key] = text != nullptr ? text : "(not stated)";
  }
  return facts;
}

const BuildFacts& host_facts() {
  static const BuildFacts facts = build_facts(Fingerprint{});
  return facts;
}

std::string mismatch(const BuildFacts& plugin) {
  std::string text;
  for (const Field& field : fields) {
    const std::string theirs = value_of(plugin, field.key), ours = value_of(host_facts(), field.key);
    if (theirs == ours) continue;
    text += (text.empty() ? "" : "; ") + std::string(field.what) + " is " + theirs + ", the host's is " +
            ours + ": " + field.mend;
  }
  return text;
}

}  // namespace trainyard::plugins
