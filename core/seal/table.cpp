// trainyard-contract INCLUDE FILE: writes a source with the table of headers that a host is built with.
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "core/seal/headers.hpp"
#include "lib/read_file.hpp"

int main(int count, char** arguments) {
  if (count != 3) return 2;
  try {
    std::ostringstream source;
    source << "#include \"core/plugins/contract.hpp\"\n\n"
              "const trainyard::plugins::Contract& trainyard::plugins::host_contract() {\n"
              "  static const Contract contract = {\n";
    for (const auto& [name, digest] : trainyard::seal::read_headers(arguments[1]).contract)
      source << "    {\"" << name << "\", \"" << digest << "\"},\n";
    source << "  };\n  return contract;\n}\n";
    // An unchanged file is not written, so that a changed comment causes no rebuild.
    return trainyard::lib::read_file(arguments[2]) == source.str() || std::ofstream(arguments[2])
                                                                          << source.str() << std::flush
               ? 0
               : 1;
  } catch (const std::exception& error) {
    std::cerr << arguments[0] << ": " << error.what() << '\n';
    return 1;
  }
}
