// Prints results of `trainyard plugins check`: text as it goes, or JSON or JUnit XML at the end. Torch-free.
#pragma once

#include <iosfwd>
#include <vector>

#include "core/check/tests.hpp"

namespace trainyard::check {

/// Prints a line with the test's sentence, and the findings below it.
void print_line(const Result& result, std::ostream& out);
/// Prints "24 passed, 1 failed, ...".
void print_counts(const Report& report, std::ostream& out);
void print_tests(std::ostream& out);

/// Prints [{"plugin", "path", "passed", "tests": [{"name", "sentence", "verdict", "what", "seconds"}]}].
void print_json(const std::vector<Report>& reports, std::ostream& out);
/// Prints a suite per plugin, for Jenkins, GitLab and others; a warning is a passed test with output.
void print_junit(const std::vector<Report>& reports, std::ostream& out);

}  // namespace trainyard::check
