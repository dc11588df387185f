extern "C" int trainyard_test_helper() {
  return 1;
}
