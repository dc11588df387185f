/* What an instrumented program is linked with: writes its trace to the file that TRACE names (trace.bin). A trace is the texts of its
   modules, each with a line "M number" ahead; a line "T"; then words of 8 bytes: the kind in the upper 8 bits, and its value. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { block_event = 1, address_event = 2, length_event = 3, returned_event = 4 };
enum { most_modules = 256 };

static const char* texts[most_modules];
static int modules;
static FILE* file;

static void finish(void) {
  if (file != NULL && fclose(file) != 0) perror("trace");
}

static void put(uint64_t kind, uint64_t value) {
  if (file == NULL) {
    const char* path = getenv("TRACE");
    file = fopen(path != NULL ? path : "trace.bin", "wb");
    if (file == NULL) {
      perror("trace");
      exit(1);
    }
    atexit(finish);
    for (int i = 0; i < modules; ++i) fprintf(file, "M %d\n%s", i, texts[i]);
    fputs("T\n", file);
  }
  const uint64_t word = kind << 56 | (value & 0xffffffffffffff);
  fwrite(&word, sizeof word, 1, file);
}

uint32_t trace_module(const char* text) {
  if (modules == most_modules || file != NULL) {
    fputs("trace: too many modules, or one that is loaded late\n", stderr);
    exit(1);
  }
  texts[modules] = text;
  return (uint32_t)modules++;
}
void trace_block(uint32_t module, uint32_t block) { put(block_event, (uint64_t)module << 32 | block); }
void trace_address(const void* address) { put(address_event, (uintptr_t)address); }
void trace_length(uint64_t bytes) { put(length_event, bytes); }
void trace_returned(void) { put(returned_event, 0); }
