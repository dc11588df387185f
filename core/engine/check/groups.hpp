// The tests by group; their sentences stand in core/check/tests.hpp.
#pragma once

#include "core/engine/check/subject.hpp"

namespace trainyard::check {

// These tests read the file alone: no code of the plugin runs.
Outcome seal(const Subject& subject);
Outcome digest(const Subject& subject);
Outcome exports(const Subject& subject);
Outcome initialisers(const Subject& subject);
Outcome libraries(const Subject& subject);

// These tests make objects of the plugin.
Outcome opens(const Subject& subject);
Outcome thousand(const Subject& subject);
Outcome order(const Subject& subject);
Outcome rank_sums(const Subject& subject);
Outcome rank_states(const Subject& subject);

// These tests train a run. `trains` looks for one, which its outcome hands to take_run().
Outcome trains(const Subject& subject);
void take_run(Subject& subject, const Outcome& outcome);
Outcome long_run(const Subject& subject);
Outcome quiet(const Subject& subject);
Outcome writes(const Subject& subject);
Outcome memory(const Subject& subject);
Outcome one_sample(const Subject& subject);
Outcome diverging(const Subject& subject);
Outcome slow_hooks(const Subject& subject);

// These tests vary the options.
Outcome bounds(const Subject& subject);
Outcome random_options(const Subject& subject);

// These tests save and load the state.
Outcome round_trip(const Subject& subject);
Outcome truncated(const Subject& subject);
Outcome random_state(const Subject& subject);
Outcome older(const Subject& subject);

// These tests compare runs that must end with the same bits.
Outcome resume(const Subject& subject);
Outcome swap(const Subject& subject);
Outcome again(const Subject& subject);
Outcome same_process(const Subject& subject);
Outcome workers(const Subject& subject);
Outcome two_threads(const Subject& subject);

}  // namespace trainyard::check
