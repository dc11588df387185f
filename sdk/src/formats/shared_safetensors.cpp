#include <trainyard/formats/shared_safetensors.hpp>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include <trainyard/formats/safetensors.hpp>
#include <trainyard/helpers/gather.hpp>
#include <trainyard/sharded.hpp>

#include "lib/sha256.hpp"
#include "plain_file.hpp"

namespace trainyard {
namespace {

using formats::fail, formats::File;

/// Writes the bytes of a tensor from an offset on, in pieces that are hashed while they are in the cache.
std::string write_at(File& file, std::uint64_t offset, const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().cpu().contiguous();
  std::string_view rest(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  lib::Sha256 hash;
  while (!rest.empty()) {
    const std::string_view piece = rest.substr(0, 1 << 20);
    hash.update(piece.data(), piece.size());
    file.write_at(offset, piece.data(), piece.size());
    offset += piece.size();
    rest.remove_prefix(piece.size());
  }
  return hash.hex();
}

/// Fills in where the tensors lie in the file, by their whole shapes; returns the header.
std::string lay_out(const std::string& path, const std::vector<SharedTensor>& tensors,
                    const std::map<std::string, std::string>& metadata, WrittenFile& file) {
  std::vector<NamedTensor> whole;  // without memory
  for (const SharedTensor& each : tensors) {
    std::vector<std::int64_t> shape = each.own.sizes().vec();
    if (each.rows) shape.front() = *each.rows;
    whole.push_back({each.name, at::empty({}, at::TensorOptions(each.own.scalar_type())).expand(shape)});
  }
  std::string header = safetensors_header(path, whole, metadata);
  const auto described = nlohmann::json::parse(header.substr(sizeof(std::uint64_t)));
  file.size = file.header = header.size();
  file.header_digest = lib::Sha256::of(header);
  for (const NamedTensor& each : whole) {
    file.tensors.push_back({.dtype = described.at(each.name).at("dtype"),
                            .shape = each.tensor.sizes().vec(),
                            .offset = file.size,
                            .length = each.tensor.nbytes()});
    file.size += each.tensor.nbytes();
  }
  return header;
}

/// Returns the bytes of the rows of all ranks before `rank`.
std::uint64_t bytes_before(const WrittenTensor& tensor, int rank, int ranks) {
  const std::int64_t rows = tensor.shape.front();
  return tensor.length / static_cast<std::uint64_t>(std::max<std::int64_t>(1, rows)) *
         static_cast<std::uint64_t>(rows_of_rank(rows, rank, ranks).first);
}

}  // namespace

WrittenFile write_together(const std::string& path, const std::vector<SharedTensor>& tensors,
                           RankGroup* ranks, const std::map<std::string, std::string>& metadata) {
  WrittenFile written;
  const std::string header = lay_out(path, tensors, metadata, written);
  const int rank = ranks != nullptr ? ranks->rank() : 0, size = ranks != nullptr ? ranks->size() : 1;
  if (rank == 0) {
    File made(path, O_WRONLY | O_CREAT | O_TRUNC);
    made.write(header.data(), header.size());
    made.resize(written.size);
  }
  if (ranks != nullptr)
    for (const std::string& digest : gather(*ranks, written.header_digest))
      if (digest != written.header_digest) fail(path, "the ranks have different tensors to write to it");

  File file(path, O_WRONLY);
  std::string digests;  // of own parts
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    WrittenTensor& entry = written.tensors[i];
    if (tensors[i].rows)
      digests += write_at(file, entry.offset + bytes_before(entry, rank, size), tensors[i].own);
    else if (rank == 0)
      entry.digest = write_at(file, entry.offset, tensors[i].own);
  }
  file.sync();
  if (ranks == nullptr) return written;
  const std::vector<std::string> all = gather(*ranks, digests);  // by then all of it is there
  const std::size_t length = lib::Sha256::of("").size();
  std::size_t part = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].rows) continue;
    WrittenTensor& entry = written.tensors[i];
    for (int each = 0; each < size; ++each)
      entry.parts.emplace_back(bytes_before(entry, each + 1, size) - bytes_before(entry, each, size),
                               all[static_cast<std::size_t>(each)].substr(part * length, length));
    ++part;
  }
  return written;
}

}  // namespace trainyard
