// P7: would end the process at the first call if symbols were bound late.
extern "C" int trainyard_test_nowhere();
extern "C" int trainyard_plugin() {
  return trainyard_test_nowhere();
}
