// The style sheet of a report page, and the script that shows values under the pointer.
#pragma once

#include <string_view>

namespace trainyard::report {

extern const std::string_view style;
extern const std::string_view script;  ///< Without it the page lacks only the values under the pointer.

}  // namespace trainyard::report
