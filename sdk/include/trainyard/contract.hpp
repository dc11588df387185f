// The contract: the headers that a plugin and its host must share to the letter: those of this folder, of
// graph/ and mixins/, and of helpers/ those whose types cross between the two. Each says TRAINYARD_CONTRACT
// with its own name once, so an object file lists those that it saw, and a plugin is locked to these. One of
// these folders that lacks it counts as seen by all; one of helpers/, formats/ or ad/ as none.
#pragma once

/// Adds NAME to a section that is not loaded; the linker merges the names of several objects.
#define TRAINYARD_CONTRACT(NAME) \
  __asm__(".pushsection .trainyard.headers,\"MS\",@progbits,1\n.asciz \"" NAME "\"\n.popsection")

TRAINYARD_CONTRACT("contract.hpp");
