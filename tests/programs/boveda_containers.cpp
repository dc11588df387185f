// Writes tensors of chance and their containers, in every recipe, into a folder: NUMBER.values, NUMBER.code.
#include <fstream>
#include <iostream>
#include <string>

#include "tests/kernels/boveda_cases.hpp"

int main(int count, char** words) {
  using namespace boveda_cases;
  if (count != 2) return 2;
  Random random(11);
  int number = 0;
  for (const Element element : {Element::bytes, Element::int8, Element::int16, Element::float32,
                                Element::bfloat16, Element::float16, Element::float64})
    for (const Recipe& recipe : recipes(element, 256))
      for (const std::size_t values : {std::size_t{0}, std::size_t{1}, std::size_t{700}}) {
        const Bytes bytes = tensor(element, values, random), code = encoded(recipe, bytes, fastest_isa());
        const std::string path = std::string(words[1]) + "/" + std::to_string(number++);
        const auto write = [&](const char* ending, const Bytes& what) {
          std::ofstream file(path + ending, std::ios::binary);
          file.write(reinterpret_cast<const char*>(what.data()), static_cast<std::streamsize>(what.size()));
        };
        write(".values", bytes);
        write(".code", code);
      }
  std::cout << number << '\n';
}
