// What a page looks like, and what it does under the pointer.
#pragma once

#include <string_view>

namespace trainyard::report {

extern const std::string_view style;
extern const std::string_view script;  ///< all is there without it but the values under the pointer

}  // namespace trainyard::report
