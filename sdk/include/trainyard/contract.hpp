// What a plugin and its host must have in common, to the letter: the headers of this folder, of graph/ and of mixins/, and
// of helpers/ those whose types cross between the two. Each says TRAINYARD_CONTRACT with its own name once. So an object
// file lists those that it saw, whatever built it and through whatever they came, and a plugin is locked to these and to no
// other. One of these folders that does not say it counts as seen by all; one of helpers/, formats/ or ad/ as no contract.
#pragma once

/// A section that is not loaded; the linker merges what several objects say.
#define TRAINYARD_CONTRACT(NAME) \
  __asm__(".pushsection .trainyard.headers,\"MS\",@progbits,1\n.asciz \"" NAME "\"\n.popsection")

TRAINYARD_CONTRACT("contract.hpp");
