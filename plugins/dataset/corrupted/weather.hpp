// Corruptions by weather and by what is between the camera and the scene, each of an image of pixels in [0, 1] and by a
// severity of 1 to 5.
#pragma once

#include "fields.hpp"

namespace corrupted {

/// Flakes that fall at a slant, over an image that gets paler.
void snow(std::int64_t severity, const trainyard::RandomStream& random, const Picture& picture);
/// A fractal cloud over the image.
void fog(std::int64_t severity, const trainyard::RandomStream& random, const Picture& picture);
/// Drops of water up to severity 3, of mud from 4 on.
void spatter(std::int64_t severity, const trainyard::RandomStream& random, const Picture& picture);
/// The image bent: an affine map of it all, and a smooth field of displacements.
void elastic_transform(std::int64_t severity, const trainyard::RandomStream& random, const Picture& picture);

}  // namespace corrupted
