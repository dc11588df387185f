// Gives SHA-256 the name that the engine calls it by.
#pragma once

#include "lib/sha256.hpp"

namespace trainyard::plugins {
using lib::Sha256;
}
