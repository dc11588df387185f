// What a benchmark of several parts is called with: [--quick] [PART]
#pragma once

#include <cstring>
#include <string>

namespace trainyard::bench {

struct Arguments {
  bool quick = false;
  std::string part;  ///< empty: all

  Arguments(int argc, char** argv) {
    for (int i = 1; i < argc; ++i)
      if (std::strcmp(argv[i], "--quick") == 0)
        quick = true;
      else
        part = argv[i];
  }
  bool wants(const char* name) const { return part.empty() || part == name; }
};

}  // namespace trainyard::bench
