// What a benchmark of several parts is called with: [--quick] [PART]
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace trainyard::bench {

struct Arguments {
  bool quick = false;
  std::string part;  ///< empty: all

  /// Ends the process where help is asked for, or where a word is none of these.
  Arguments(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const bool help = word == "--help" || word == "-h";
      if (word == "--quick")
        quick = true;
      else if (part.empty() && !word.starts_with('-'))
        part = word;
      else {
        std::fprintf(help ? stdout : stderr, "usage: %s [--quick] [PART]\n", argv[0]);
        std::exit(help ? 0 : 2);
      }
    }
  }
  bool wants(const char* name) const { return part.empty() || part == name; }
};

}  // namespace trainyard::bench
