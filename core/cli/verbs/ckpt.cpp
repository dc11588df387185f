// trainyard ckpt ls, inspect, verify, diff, convert: shows, checks and converts checkpoints.
#include <iostream>

#include "core/cli/ckpt_diff.hpp"
#include "core/cli/ckpt_verbs.hpp"
#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {
namespace {

struct CkptArguments {
  std::string path, other;
  Format format = Format::text;
  bool values = false;
};

const std::string place = "run directory, folder of checkpoints, or checkpoint";

int ls(CkptArguments& given) {
  return static_cast<int>(ckpt_ls(given.path, given.format, std::cout));
}
int inspect(CkptArguments& given) {
  return static_cast<int>(ckpt_inspect(given.path, given.format, std::cout));
}
int verify(CkptArguments& given) {
  return static_cast<int>(ckpt_verify(given.path, given.format, std::cout));
}
int diff(CkptArguments& given) {
  return static_cast<int>(ckpt_diff(given.path, given.other, given.values, given.format, std::cout));
}
int convert(CkptArguments& given) {
  return static_cast<int>(ckpt_convert(given.path, given.other, std::cout));
}

}  // namespace

void add_ckpt(Arguments command, CommandLine& line) {
  Arguments verb = command.verb("ckpt", "look into checkpoints and check them");
  const auto given = std::make_shared<CkptArguments>();
  const auto add = [&](const char* name, const char* help, int (*action)(CkptArguments&)) {
    Arguments added = verb.verb(name, help);
    added.add("path", given->path, place).required().run();
    when_chosen(added, line, given, action);
    return added;
  };
  add_format(add("ls", "the checkpoints, oldest first", ls), given->format);
  add_format(add("inspect", "what the newest of them holds", inspect), given->format);
  add_format(add("verify", "read every byte and name every damage", verify), given->format);
  Arguments compare = add("diff", "scalars and tensors in which two differ", diff);
  compare.add("other", given->other, place).required().run();
  compare.flag("--values", given->values, "say by how much elements of tensors differ");
  add_format(compare, given->format);
  add("convert", "copy the weights of the newest into one safetensors file", convert)
      .add("file", given->other, "safetensors file to write")
      .required();
}

}  // namespace trainyard::cli
