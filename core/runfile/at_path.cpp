#include "core/runfile/at_path.hpp"

namespace trainyard::config {

const Value* value_at(const Table& root, std::string_view path) {
  const Table* table = &root;
  while (true) {
    const std::size_t dot = path.find('.');
    const Value* value = table->find(path.substr(0, dot));
    if (value == nullptr || dot == std::string_view::npos) return value;
    table = value->get_if<Table>();
    if (table == nullptr) return nullptr;
    path.remove_prefix(dot + 1);
  }
}

}  // namespace trainyard::config
