// A library that a plugin needs.
extern "C" __attribute__((visibility("default"))) int seeded_helper() {
  return 1;
}
