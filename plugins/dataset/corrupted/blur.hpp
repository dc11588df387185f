// Corruptions that blur, each of an image of pixels in [0, 1] and by a severity of 1 to 5.
#pragma once

#include "fields.hpp"

namespace corrupted {

void gaussian_blur(std::int64_t severity, const Picture& picture);
void defocus_blur(std::int64_t severity, const Picture& picture);
/// Exchanges pixels with neighbours between two light blurs, as glass with a rough surface does.
void glass_blur(std::int64_t severity, const trainyard::RandomStream& random, const Picture& picture);
/// In a direction that is drawn.
void motion_blur(std::int64_t severity, const trainyard::RandomStream& random, const Picture& picture);
/// The mean of the image and of its middle, enlarged more and more.
void zoom_blur(std::int64_t severity, const Picture& picture);

}  // namespace corrupted
