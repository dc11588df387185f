#include "core/engine/events/call_frame.hpp"

namespace trainyard::events {

constinit thread_local CallFrame call_frame;

}  // namespace trainyard::events
