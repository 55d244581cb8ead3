#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/served_model.h"
#include "server/server_options.h"
#include "session/session.h"

namespace klotski {

// Functions that a server calls; all but `open_session` may be empty.
struct ServerEvents {
  std::function<std::unique_ptr<Session>()> open_session;  // loads, on the engine's thread
  std::function<void(const std::string& url)> listening{};
  std::function<void()> loaded{};           // on the engine's thread
  std::function<void(Session&)> closing{};  // on the engine's thread
  std::function<bool()> stop_asked{};       // asked several times a second
};

// Serves a model until stop_asked. Three threads: connections on one; the engine on one; on the
// caller's, whose stack alone is large enough for templates that nest deeply, bodies become tokens.
// Returns whether all requests could end by themselves. Throws what ended the engine.
bool serve(const ServedModel& served, const ServerOptions& options, ServerEvents events);

}  // namespace klotski
