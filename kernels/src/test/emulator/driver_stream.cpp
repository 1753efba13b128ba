// Streams, events and graphs. Work runs when it is submitted; a stream that is being captured records it instead, and
// a graph replays what was recorded.
#include <chrono>
#include <memory>

#include "driver.h"

namespace emu {

struct Graph {
  std::vector<std::function<CUresult()>> work;
};
struct Stream {
  unsigned flags;
  std::unique_ptr<Graph> captured;  // not null while capturing
};
struct Event {
  bool recorded = false;
  std::chrono::steady_clock::time_point time;
};
static std::set<Stream*> streams;
static std::set<Event*> events;
static std::set<Graph*> graphs, executables;

/** Null, 1 and 2 name the default streams. */
static bool valid(const void* stream) {
  return reinterpret_cast<uintptr_t>(stream) <= 2 || streams.count(static_cast<Stream*>(const_cast<void*>(stream)));
}
static Stream* own(void* stream) {
  return reinterpret_cast<uintptr_t>(stream) <= 2 ? nullptr : static_cast<Stream*>(stream);
}

CUresult stream_submit(void* stream, std::function<CUresult()> work) {
  if (!valid(stream)) return CUDA_ERROR_INVALID_HANDLE;
  Stream* s = own(stream);
  if (s && s->captured) {
    s->captured->work.push_back(std::move(work));
    return CUDA_SUCCESS;
  }
  return work();
}

}  // namespace emu

using namespace emu;

// ---- streams ----

DRIVER_API cuStreamCreate(Stream** stream, unsigned flags) {
  DRIVER_ENTER;
  *stream = new Stream{flags, nullptr};
  streams.insert(*stream);
  return CUDA_SUCCESS;
}
DRIVER_API cuStreamCreateWithPriority(Stream** stream, unsigned flags, int) { return cuStreamCreate(stream, flags); }
DRIVER_API cuStreamDestroy_v2(Stream* stream) {
  DRIVER_ENTER;
  if (!streams.erase(stream)) return CUDA_ERROR_INVALID_HANDLE;
  delete stream;
  return CUDA_SUCCESS;
}
DRIVER_API cuStreamSynchronize(void* stream) {
  DRIVER_ENTER;
  if (!valid(stream)) return CUDA_ERROR_INVALID_HANDLE;
  Stream* s = own(stream);
  return s && s->captured ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}
DRIVER_API cuStreamQuery(void* stream) { return cuStreamSynchronize(stream); }
DRIVER_API cuStreamWaitEvent(void* stream, Event* event, unsigned) {
  DRIVER_ENTER;
  return valid(stream) && events.count(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
DRIVER_API cuStreamGetFlags(void* stream, unsigned* flags) {
  DRIVER_ENTER;
  if (!valid(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *flags = own(stream) ? own(stream)->flags : 0;
  return CUDA_SUCCESS;
}
DRIVER_API cuLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  DRIVER_ENTER;
  return stream_submit(stream, [=] {
    function(data);
    return CUDA_SUCCESS;
  });
}

// ---- events; elapsed times are the emulator's, which say nothing about a GPU ----

DRIVER_API cuEventCreate(Event** event, unsigned) {
  DRIVER_ENTER;
  *event = new Event;
  events.insert(*event);
  return CUDA_SUCCESS;
}
DRIVER_API cuEventDestroy_v2(Event* event) {
  DRIVER_ENTER;
  if (!events.erase(event)) return CUDA_ERROR_INVALID_HANDLE;
  delete event;
  return CUDA_SUCCESS;
}
DRIVER_API cuEventRecord(Event* event, void* stream) {
  DRIVER_ENTER;
  if (!events.count(event)) return CUDA_ERROR_INVALID_HANDLE;
  return stream_submit(stream, [=] {
    event->recorded = true;
    event->time = std::chrono::steady_clock::now();
    return CUDA_SUCCESS;
  });
}
DRIVER_API cuEventRecordWithFlags(Event* event, void* stream, unsigned) { return cuEventRecord(event, stream); }
DRIVER_API cuEventSynchronize(Event* event) {
  DRIVER_ENTER;
  return events.count(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
DRIVER_API cuEventQuery(Event* event) { return cuEventSynchronize(event); }
DRIVER_API cuEventElapsedTime(float* milliseconds, Event* start, Event* end) {
  DRIVER_ENTER;
  if (!events.count(start) || !events.count(end) || !start->recorded || !end->recorded) return CUDA_ERROR_INVALID_HANDLE;
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return CUDA_SUCCESS;
}

// ---- capture and graphs ----

DRIVER_API cuStreamBeginCapture_v2(Stream* stream, int) {
  DRIVER_ENTER;
  if (!streams.count(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // the default stream cannot be captured
  if (stream->captured) return CUDA_ERROR_ILLEGAL_STATE;
  stream->captured = std::make_unique<Graph>();
  return CUDA_SUCCESS;
}
DRIVER_API cuStreamEndCapture(Stream* stream, Graph** graph) {
  DRIVER_ENTER;
  if (!streams.count(stream) || !stream->captured) return CUDA_ERROR_ILLEGAL_STATE;
  *graph = stream->captured.release();
  graphs.insert(*graph);
  return CUDA_SUCCESS;
}
DRIVER_API cuStreamIsCapturing(void* stream, int* status) {
  DRIVER_ENTER;
  if (!valid(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *status = own(stream) && own(stream)->captured ? 1 : 0;
  return CUDA_SUCCESS;
}
DRIVER_API cuGraphInstantiateWithFlags(Graph** executable, Graph* graph, unsigned long long) {
  DRIVER_ENTER;
  if (!graphs.count(graph)) return CUDA_ERROR_INVALID_HANDLE;
  *executable = new Graph(*graph);
  executables.insert(*executable);
  return CUDA_SUCCESS;
}
DRIVER_API cuGraphUpload(Graph* executable, void*) {
  DRIVER_ENTER;
  return executables.count(executable) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
DRIVER_API cuGraphLaunch(Graph* executable, void* stream) {
  DRIVER_ENTER;
  if (!executables.count(executable) || !valid(stream)) return CUDA_ERROR_INVALID_HANDLE;
  for (auto& work : executable->work) {
    if (CUresult rc = work()) return rc;
  }
  return CUDA_SUCCESS;
}
DRIVER_API cuGraphGetNodes(Graph* graph, void**, size_t* count) {
  DRIVER_ENTER;
  if (!graphs.count(graph)) return CUDA_ERROR_INVALID_HANDLE;
  *count = graph->work.size();
  return CUDA_SUCCESS;
}
DRIVER_API cuGraphDestroy(Graph* graph) {
  DRIVER_ENTER;
  if (!graphs.erase(graph)) return CUDA_ERROR_INVALID_HANDLE;
  delete graph;
  return CUDA_SUCCESS;
}
DRIVER_API cuGraphExecDestroy(Graph* executable) {
  DRIVER_ENTER;
  if (!executables.erase(executable)) return CUDA_ERROR_INVALID_HANDLE;
  delete executable;
  return CUDA_SUCCESS;
}
