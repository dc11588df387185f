#include "neighbours.hpp"

namespace graph {

std::unique_ptr<NeighbourSampler> make_sampler(const Csr& csr, IdMap ids) {
  return std::visit(
      [&]<class Col>(std::span<const Col>) -> std::unique_ptr<NeighbourSampler> {
        if (ids == IdMap::direct)
          return std::make_unique<HopwiseSampler<Col, DirectMap, Tiles<PickSet>>>(csr);
        return std::make_unique<HopwiseSampler<Col, FlatMap, Tiles<PickSet>>>(csr);
      },
      csr.col);
}

}  // namespace graph
