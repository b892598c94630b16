#include "runtime/capi/structs.hpp"

#include <acc/agent.hpp>
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

using namespace acc::capi;
using acc::runtime::BackendKind;
using acc::runtime::CallOptions;
using acc::runtime::GroupOptions;
using acc::runtime::Millis;
using acc::runtime::ProcessGroup;

namespace acc::capi {

namespace {

std::optional<Millis> to_limit(int64_t ms, const char* name) {
  if (ms == ACC_DEFAULT) return std::nullopt;
  if (ms < 0) refuse(std::string{name} + " is negative");
  return Millis{ms};
}

constexpr acc_config kConfig = ACC_CONFIG_INIT;
constexpr acc_call kCall = ACC_CALL_INIT;

acc_objects* new_objects(std::vector<std::string> values) {
  return new acc_objects{std::move(values)};
}

std::string_view bytes_of(const void* data, size_t bytes) {
  if (data == nullptr && bytes > 0) refuse("the object is a null pointer");
  return {static_cast<const char*>(data), bytes};
}

}  // namespace

GroupOptions to_options(const acc_config* config) {
  const acc_config known = known_part(config, kConfig);
  GroupOptions options;
  if (known.backend < ACC_BACKEND_AUTOMATIC || known.backend > ACC_BACKEND_NCCL)
    refuse("there is no backend number " + std::to_string(known.backend));
  options.backend = static_cast<BackendKind>(known.backend);
  if (known.check != ACC_DEFAULT && known.check != 0 && known.check != 1)
    refuse("check is " + std::to_string(known.check) + "; it must be 0, 1 or ACC_DEFAULT");
  if (known.check != ACC_DEFAULT) options.check = known.check != 0;
  options.init_timeout = to_limit(known.init_timeout_ms, "init_timeout_ms");
  options.timeout = to_limit(known.timeout_ms, "timeout_ms");
  if (known.name != nullptr) options.name = known.name;
  return options;
}

CallOptions to_call(const acc_call* call) {
  if (call == nullptr) return {};
  const acc_call known = known_part(call, kCall);
  return {.timeout = to_limit(known.timeout_ms, "timeout_ms"), .stream = known.stream};
}

}  // namespace acc::capi

extern "C" {

void acc_config_init(acc_config* config, size_t size) { write_defaults(config, size, kConfig); }
void acc_call_init(acc_call* call, size_t size) { write_defaults(call, size, kCall); }

// ---- communicators ----

acc_status acc_init(const acc_config* config, acc_comm** comm) {
  return made(comm, [&] { return new_comm(ProcessGroup::from_environment(to_options(config))); });
}

acc_status acc_init_single(const acc_config* config, acc_comm** comm) {
  return made(comm, [&] { return new_comm(ProcessGroup::single(to_options(config))); });
}

acc_status acc_init_threads(int32_t size, const acc_config* config, acc_comm** comms) {
  return guarded([&] {
    given(comms, "the array for the handles");
    std::vector<std::unique_ptr<acc_comm>> all;
    for (auto& group : ProcessGroup::threads(size, to_options(config)))
      all.emplace_back(new_comm(std::move(group)));
    std::transform(all.begin(), all.end(), comms, [](auto& comm) { return comm.release(); });
  });
}

void acc_finalize(acc_comm* comm) { delete comm; }

int32_t acc_rank(const acc_comm* comm) { return comm != nullptr ? comm->group.rank() : -1; }
int32_t acc_size(const acc_comm* comm) { return comm != nullptr ? comm->group.size() : -1; }
int32_t acc_local_rank(const acc_comm* comm) {
  return comm != nullptr ? comm->group.local_rank() : -1;
}
int32_t acc_local_size(const acc_comm* comm) {
  return comm != nullptr ? comm->group.local_size() : -1;
}
const char* acc_name(const acc_comm* comm) {
  return comm != nullptr ? comm->group.name().c_str() : "";
}
const char* acc_backend(const acc_comm* comm) {
  return comm != nullptr ? comm->backend.c_str() : "";
}
int32_t acc_is_broken(const acc_comm* comm) {
  return comm != nullptr ? static_cast<int32_t>(comm->group.broken()) : -1;
}

acc_status acc_split(acc_comm* comm, int32_t color, int32_t key, const char* name,
                     acc_comm** part) {
  return made(part,
              [&] { return new_comm(given(comm, "comm").group.split(color, key, text_of(name))); });
}

acc_status acc_sub_group(acc_comm* comm, const int32_t* ranks, size_t count, const char* name,
                         acc_comm** part) {
  return made(part, [&] {
    if (count > 0) given(ranks, "ranks");
    return new_comm(given(comm, "comm").group.sub_group({ranks, count}, text_of(name)));
  });
}

void acc_abort(acc_comm* comm, const char* why) {
  if (comm != nullptr) comm->group.abort(why != nullptr ? why : "acc_abort() was called");
}

// ---- objects ----

acc_status acc_all_gather_object(acc_comm* comm, const void* mine, size_t bytes,
                                 acc_objects** objects) {
  return made(objects, [&] {
    return new_objects(given(comm, "comm").group.all_gather_object(bytes_of(mine, bytes)));
  });
}

acc_status acc_gather_object(acc_comm* comm, const void* mine, size_t bytes, int32_t root,
                             acc_objects** objects) {
  return made(objects, [&] {
    return new_objects(given(comm, "comm").group.gather_object(bytes_of(mine, bytes), root));
  });
}

acc_status acc_broadcast_object(acc_comm* comm, const void* roots, size_t bytes, int32_t root,
                                acc_objects** objects) {
  return made(objects, [&] {
    auto& group = given(comm, "comm").group;
    const auto object = group.rank() == root ? bytes_of(roots, bytes) : std::string_view{};
    return new_objects({group.broadcast_object(object, root)});
  });
}

acc_status acc_scatter_object(acc_comm* comm, const void* const* roots, const size_t* bytes,
                              int32_t root, acc_objects** objects) {
  return made(objects, [&] {
    auto& group = given(comm, "comm").group;
    std::vector<std::string> parts;
    if (group.rank() == root) {
      given(roots, "roots");
      given(bytes, "bytes");
      for (int r = 0; r < group.size(); ++r) parts.emplace_back(bytes_of(roots[r], bytes[r]));
    }
    return new_objects({group.scatter_object(parts, root)});
  });
}

size_t acc_objects_count(const acc_objects* objects) {
  return objects != nullptr ? objects->values.size() : 0;
}
const void* acc_objects_data(const acc_objects* objects, size_t index) {
  return index < acc_objects_count(objects) ? objects->values[index].data() : nullptr;
}
size_t acc_objects_size(const acc_objects* objects, size_t index) {
  return index < acc_objects_count(objects) ? objects->values[index].size() : 0;
}
void acc_objects_free(acc_objects* objects) { delete objects; }

// ---- shared memory, record, agent ----

acc_status acc_allocate_shared(acc_comm* comm, size_t bytes, acc_buffer** buffer) {
  return made(buffer,
              [&] { return new acc_buffer{given(comm, "comm").group.allocate_shared(bytes)}; });
}
void* acc_buffer_data(const acc_buffer* buffer) {
  return buffer != nullptr ? buffer->buffer.data() : nullptr;
}
size_t acc_buffer_size(const acc_buffer* buffer) {
  return buffer != nullptr ? buffer->buffer.bytes() : 0;
}
void acc_buffer_free(acc_buffer* buffer) { delete buffer; }

acc_status acc_flight_record(const acc_comm* comm, acc_objects** lines) {
  return made(lines, [&] { return new_objects({given(comm, "comm").group.flight_record()}); });
}

int32_t acc_agent_present(void) {
  int32_t present = 0;
  guarded([&] { present = acc::agent::present() ? 1 : 0; });
  return present;
}
void acc_agent_heartbeat(uint64_t step) {
  guarded([&] { acc::agent::heartbeat(step); });
}
void acc_agent_checkpoint(uint64_t step) {
  guarded([&] { acc::agent::checkpoint(step); });
}
void acc_agent_section_begin(const char* name, int64_t limit_ms) {
  guarded([&] {
    acc::agent::begin_section(text_of(name), to_limit(limit_ms, "limit_ms").value_or(Millis{0}));
  });
}
void acc_agent_section_end(void) {
  guarded([&] { acc::agent::end_section(); });
}
void acc_agent_no_restart(const char* why) {
  guarded([&] { acc::agent::no_restart(text_of(why)); });
}
int32_t acc_agent_is_current(int64_t timeout_ms) {
  int32_t answer = -1;
  guarded([&] {
    const auto limit = to_limit(timeout_ms, "timeout_ms");
    answer = (limit ? acc::agent::is_current(*limit) : acc::agent::is_current()) ? 1 : 0;
  });
  return answer;
}

}  // extern "C"
