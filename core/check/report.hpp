// What `trainyard plugins check` prints: text as it goes, or JSON or JUnit's XML at the end. Torch-free.
#pragma once

#include <iosfwd>
#include <vector>

#include "core/check/tests.hpp"

namespace trainyard::check {

/// One line a test, with the sentence; what was found below it.
void print_line(const Result& result, std::ostream& out);
/// "24 passed, 1 failed, ...".
void print_counts(const Report& report, std::ostream& out);
void print_tests(std::ostream& out);

/// [{"plugin", "path", "passed", "tests": [{"name", "sentence", "verdict", "what", "seconds"}]}]
void print_json(const std::vector<Report>& reports, std::ostream& out);
/// A suite a plugin; a warning is a passed test that prints. Read by Jenkins, GitLab and the like.
void print_junit(const std::vector<Report>& reports, std::ostream& out);

}  // namespace trainyard::check
