// Patterns of names, as run files write them: literal characters, * for any run of them, ? for any one.
#pragma once

#include <string_view>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("pattern.hpp");

namespace trainyard {

bool fits(std::string_view pattern, std::string_view name);

}  // namespace trainyard
