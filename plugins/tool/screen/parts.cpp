#include "parts.hpp"

#include <filesystem>

#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

#include "numbers_file.hpp"

namespace screen {

std::string Parts::path_of(std::size_t number) const {
  return folder_ + "/" + std::to_string(number) + ".safetensors";
}

std::optional<Archive> Parts::find(std::size_t number) {
  const std::string path = path_of(number);
  if (!std::filesystem::exists(path)) return std::nullopt;
  try {
    NumbersFile file = read_numbers(path);
    const auto text = nlohmann::json::parse(file.text);
    if (text.at("key").get<std::string>() == key_ && file.is_whole(text))
      return Archive(std::move(file.numbers), path);
    complaint_ = folder_ + " has detectors of other rows or options, which are not used";
  } catch (const std::exception& error) {
    complaint_ = path + " cannot be used: " + error.what();
  }
  return std::nullopt;
}

void Parts::add(std::size_t number, const Archive& archive) {
  try {
    std::filesystem::create_directory(folder_);
    write_numbers(path_of(number), {{"key", key_}}, archive.numbers());
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    unwritten_ = error.what();
  }
}

void Parts::remove() {
  std::error_code ignored;  // what is left is used by the same screening, and written over by another
  std::filesystem::remove_all(folder_, ignored);
}

std::size_t Parts::count(std::size_t detectors) const {
  std::size_t found = 0;
  for (std::size_t number = 0; number < detectors; ++number)
    found += std::filesystem::exists(path_of(number)) ? 1U : 0U;
  return found;
}

std::string Parts::unwritten() const {
  const std::lock_guard lock(mutex_);
  return unwritten_;
}

}  // namespace screen
