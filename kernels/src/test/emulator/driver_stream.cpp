// Streams, events and graphs. Work runs when it is submitted, or, where streams are late, not before somebody waits for
// it; a stream that is being captured records it instead, and a graph replays what was recorded.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <thread>

#include "driver.h"
#include "scheduler.h"

namespace emu {

struct Stream;
/** For each stream, by its number, how much of its work is done before; a stream has one for what comes next, an event a
    copy. An address would not do: it may be that of a later stream. */
typedef std::map<size_t, size_t> Clock;
struct Step {
  Work work;
  Clock after;
};
struct Graph {
  std::vector<std::pair<size_t, Step>> steps;  // in the order of submission, which keeps every dependency
  size_t origin;
};

/** A capture: begun on one stream, which others join by waiting for an event recorded in it. */
struct Capture {
  Graph graph;
  const Stream* origin;
  int mode;  // 0 global, 1 thread-local, 2 relaxed: which other calls are forbidden meanwhile
  std::thread::id thread;
  bool invalid = false;
  std::map<size_t, Clock> clocks;  // of the streams that take part
};
struct Stream {
  unsigned flags;
  std::shared_ptr<Capture> capture;  // null: not capturing
  size_t number;                     // in the order of creation
  const void* context;
  std::deque<Step> queue = {};       // what has not run yet
  size_t done = 0;
  Clock next = {};
};
struct Event {
  bool timed = true;  // false: made with CU_EVENT_DISABLE_TIMING
  bool recorded = false;
  std::chrono::steady_clock::time_point time;
  std::shared_ptr<Capture> capture;  // where it was recorded last; then it marks a place, and has no time
  Clock clock;
};
/** Work waits until somebody waits for it, and then only what is needed for that runs, so that one stream's work that
    lacks a wait for another's meets what is not ready or overwritten. */
static bool late = getenv("EMU_STREAMS") && std::string(getenv("EMU_STREAMS")) == "late";
static std::set<Stream*> streams;
static std::set<Event*> events;
static std::set<Graph*> graphs;
static std::map<Graph*, std::shared_ptr<const Graph>> executables;

/** Null, 1 and 2 name the default streams. */
static bool valid(const void* stream) {
  return reinterpret_cast<uintptr_t>(stream) <= 2 || streams.count(static_cast<Stream*>(const_cast<void*>(stream)));
}
static Stream* own(void* stream) {
  return reinterpret_cast<uintptr_t>(stream) <= 2 ? nullptr : static_cast<Stream*>(stream);
}

static CUresult invalidate(Capture& capture, CUresult why) {
  capture.invalid = true;
  return why;
}

static Stream* numbered(size_t number) {
  for (Stream* s : streams) {
    if (s->number == number) return s;
  }
  return nullptr;  // destroyed, which ran its work
}

/** Runs a stream's work up to the step of that number, and before each step what it comes after. */
static void run_until(Stream* s, size_t count) {
  while (s && s->done < count && !s->queue.empty()) {
    Step step = std::move(s->queue.front());
    s->queue.pop_front();
    for (auto& [other, n] : step.after) {
      if (other != s->number) run_until(numbered(other), n);
    }
    CUresult rc = sticky_error ? CUDA_SUCCESS : step.work.run();
    s->done++;
    if (rc) fail_context(rc);
  }
}
static void run_until(const Clock& clock) {
  for (auto& [s, n] : clock) run_until(numbered(s), n);
}
static void run_all(bool blocking_only) {
  std::map<size_t, Stream*> in_order;
  for (Stream* s : streams) in_order[s->number] = s;
  for (auto& [number, s] : in_order) {
    if (!blocking_only || !(s->flags & 1)) run_until(s, SIZE_MAX);
  }
}
CUresult streams_finish() {
  run_all(false);
  return sticky_error;
}

void streams_free_all(const void* context) {
  for (auto s = streams.begin(); s != streams.end();) {
    if ((*s)->context != context) {
      ++s;
      continue;
    }
    if ((*s)->capture) (*s)->capture->invalid = true;  // a stream of another context may have joined it
    delete *s;
    s = streams.erase(s);
  }
}

/** The stream that was captured goes first, the others where it waits for them; so late streams meet in a graph too. A
    kernel that may start before the one before it ends does so before that one begins. */
static CUresult replay(const Graph& graph) {
  std::map<size_t, std::vector<const Step*>> lists;
  std::map<size_t, size_t> done;
  for (auto& [stream, step] : graph.steps) lists[stream].push_back(&step);
  std::function<CUresult(size_t, size_t)> run = [&](size_t s, size_t count) {
    while (done[s] < std::min(count, lists[s].size())) {
      const Step& step = *lists[s][done[s]];
      for (auto& [other, n] : step.after) {
        if (other == s) continue;
        if (CUresult rc = run(other, n)) return rc;
      }
      if (step.work.kernel && done[s] + 1 < std::min(count, lists[s].size())) {
        const Step& next = *lists[s][done[s] + 1];
        bool alone = true;  // it waits for no other stream
        for (auto& [other, n] : next.after) alone = alone && (other == s || done[other] >= n);
        if (next.work.start && alone) next.work.start();
      }
      if (CUresult rc = step.work.run()) return rc;
      done[s]++;
    }
    return CUDA_SUCCESS;
  };
  if (CUresult rc = run(graph.origin, SIZE_MAX)) return rc;
  for (auto& [stream, list] : lists) {
    if (CUresult rc = run(stream, SIZE_MAX)) return rc;
  }
  return CUDA_SUCCESS;
}

CUresult capture_forbids() {
  for (Stream* s : streams) {
    if (!s->capture || s->capture->mode == 2) continue;
    if (s->capture->mode == 1 && s->capture->thread != std::this_thread::get_id()) continue;
    return invalidate(*s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return CUDA_SUCCESS;
}

/** The default stream waits for all streams but those made non-blocking (flag 1), which a capture cannot express. */
static CUresult default_stream_forbidden() {
  for (Stream* s : streams) {
    if (s->capture && !(s->flags & 1)) return invalidate(*s->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  }
  return CUDA_SUCCESS;
}

bool stream_is_capturing(void* stream) {
  return valid(stream) && own(stream) && own(stream)->capture;
}
CUresult stream_capture_refuses(void* stream) {
  return invalidate(*own(stream)->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult stream_finish(void* stream) {
  if (!valid(stream)) return CUDA_ERROR_INVALID_HANDLE;
  Stream* s = own(stream);
  if (!s) {
    if (CUresult rc = default_stream_forbidden()) return rc;
    run_all(true);
    return sticky_error;
  }
  if (s->capture) return stream_capture_refuses(stream);
  run_until(s, SIZE_MAX);
  return sticky_error;
}

/** Whether all is done that an event marks. */
static bool is_done(const Clock& clock) {
  for (auto& [number, count] : clock) {
    Stream* s = numbered(number);
    if (s && s->done < count) return false;
  }
  return true;
}
/** Lets one step of what a clock counts run, as somebody who asks again and again must not wait for ever. */
static void run_one(const Clock& clock) {
  for (auto& [number, count] : clock) {
    Stream* s = numbered(number);
    if (s && s->done < count) return run_until(s, s->done + 1);
  }
}

CUresult stream_submit(void* stream, Work work) {
  if (!valid(stream)) return CUDA_ERROR_INVALID_HANDLE;
  Stream* s = own(stream);
  if (!s) {
    if (CUresult rc = default_stream_forbidden()) return rc;
    run_all(true);
    return sticky_error ? sticky_error : work.run();
  }
  if (!s->capture) {
    if (!late) return work.run();
    s->queue.push_back({std::move(work), s->next});
    s->next[s->number]++;
    return CUDA_SUCCESS;
  }
  if (s->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  s->capture->graph.steps.push_back({s->number, {std::move(work), s->capture->clocks[s->number]}});
  s->capture->clocks[s->number][s->number]++;
  return CUDA_SUCCESS;
}

/** The stream waits for an event of a capture: it joins the capture, or a part of it does what was said there. */
static CUresult join(Stream* s, const Event& event) {
  Capture& capture = *event.capture;
  if (!capture.origin) return CUDA_ERROR_CAPTURED_EVENT;  // that capture has ended
  if (capture.invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!s) return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (s->capture && s->capture != event.capture) return invalidate(*s->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  s->capture = event.capture;
  Clock& clock = capture.clocks[s->number];
  for (auto& [other, done] : event.clock) clock[other] = std::max(clock[other], done);
  return CUDA_SUCCESS;
}

/** Whether the stream that began the capture has waited, in the end, for all that the others do. */
static bool joined(Capture& capture) {
  for (auto& [stream, clock] : capture.clocks) {
    if (capture.clocks[capture.origin->number][stream] < clock[stream]) return false;
  }
  return true;
}

}  // namespace emu

using namespace emu;

// ---- streams ----

DRIVER_API cuStreamCreate(Stream** stream, unsigned flags) {
  DRIVER_ENTER;
  calls.objects++;
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  static size_t made = 0;
  *stream = new Stream{flags, nullptr, made++, current_context()};
  streams.insert(*stream);
  return CUDA_SUCCESS;
}
DRIVER_API cuStreamCreateWithPriority(Stream** stream, unsigned flags, int) { return cuStreamCreate(stream, flags); }
DRIVER_API cuStreamDestroy_v2(Stream* stream) {
  DRIVER_ENTER;
  if (!streams.count(stream)) return CUDA_ERROR_INVALID_HANDLE;
  run_until(stream, SIZE_MAX);
  streams.erase(stream);
  if (stream->capture) stream->capture->invalid = true;
  delete stream;
  return CUDA_SUCCESS;
}
DRIVER_API cuStreamSynchronize(void* stream) {
  DRIVER_ENTER;
  return stream_finish(stream);
}
DRIVER_API cuStreamQuery(void* stream) {
  DRIVER_ENTER;
  if (!valid(stream)) return CUDA_ERROR_INVALID_HANDLE;
  Stream* s = own(stream);
  if (!s || s->capture) return stream_finish(stream);
  if (s->queue.empty()) return sticky_error;
  run_until(s, s->done + 1);
  return sticky_error ? sticky_error : CUDA_ERROR_NOT_READY;
}
/** An event that was never recorded is no reason to wait. */
DRIVER_API cuStreamWaitEvent(void* stream, Event* event, unsigned) {
  DRIVER_ENTER;
  if (!valid(stream) || !events.count(event)) return CUDA_ERROR_INVALID_HANDLE;
  Stream* s = own(stream);
  if (event->capture) return join(s, *event);
  if (!s) {
    if (CUresult rc = default_stream_forbidden()) return rc;
    run_until(event->clock);
    return sticky_error;
  }
  if (!event->recorded) return CUDA_SUCCESS;
  if (!s->capture) {
    for (auto& [other, done] : event->clock) s->next[other] = std::max(s->next[other], done);
    return CUDA_SUCCESS;
  }
  return invalidate(*s->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);  // work outside of the capture
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

DRIVER_API cuEventCreate(Event** event, unsigned flags) {
  DRIVER_ENTER;
  calls.objects++;
  *event = new Event;
  (*event)->timed = !(flags & 2);
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
  if (!events.count(event) || !valid(stream)) return CUDA_ERROR_INVALID_HANDLE;
  Stream* s = own(stream);
  if (s && s->capture) {
    if (s->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    *event = {event->timed, false, {}, s->capture, s->capture->clocks[s->number]};
    return CUDA_SUCCESS;
  }
  if (CUresult rc = s ? CUDA_SUCCESS : default_stream_forbidden()) return rc;
  *event = {event->timed, true, std::chrono::steady_clock::now(), nullptr, s ? s->next : Clock()};
  return CUDA_SUCCESS;
}
DRIVER_API cuEventRecordWithFlags(Event* event, void* stream, unsigned) { return cuEventRecord(event, stream); }
DRIVER_API cuEventSynchronize(Event* event) {
  DRIVER_ENTER;
  if (!events.count(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture) return invalidate(*event->capture, CUDA_ERROR_CAPTURED_EVENT);
  run_until(event->clock);
  return sticky_error;
}
DRIVER_API cuEventQuery(Event* event) {
  DRIVER_ENTER;
  if (!events.count(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture) return invalidate(*event->capture, CUDA_ERROR_CAPTURED_EVENT);
  if (is_done(event->clock)) return sticky_error;
  run_one(event->clock);
  return sticky_error ? sticky_error : CUDA_ERROR_NOT_READY;
}
DRIVER_API cuEventElapsedTime(float* milliseconds, Event* start, Event* end) {
  DRIVER_ENTER;
  for (Event* e : {start, end}) {
    if (!events.count(e) || !e->recorded || !e->timed) return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!is_done(start->clock) || !is_done(end->clock)) return CUDA_ERROR_NOT_READY;
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return CUDA_SUCCESS;
}

// ---- capture and graphs ----

DRIVER_API cuStreamBeginCapture_v2(Stream* stream, int mode) {
  DRIVER_ENTER;
  calls.captures++;
  if (!streams.count(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // the default stream cannot be captured
  if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (mode < 0 || mode > 2) return CUDA_ERROR_INVALID_VALUE;
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->mode = mode;
  stream->capture->thread = std::this_thread::get_id();
  stream->capture->clocks[stream->number];
  return CUDA_SUCCESS;
}
DRIVER_API cuStreamEndCapture(Stream* stream, Graph** graph) {
  DRIVER_ENTER;
  *graph = nullptr;
  if (!streams.count(stream) || !stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream) return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  if (capture->mode != 2 && capture->thread != std::this_thread::get_id()) {
    return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }
  bool whole = joined(*capture);
  for (Stream* s : streams) {
    if (s->capture == capture) s->capture = nullptr;
  }
  capture->origin = nullptr;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!whole) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *graph = new Graph(std::move(capture->graph));
  (*graph)->origin = stream->number;
  graphs.insert(*graph);
  return CUDA_SUCCESS;
}
/** 0 no, 1 yes, 2 a capture that has become invalid. */
DRIVER_API cuStreamIsCapturing(void* stream, int* status) {
  DRIVER_ENTER;
  if (!valid(stream)) return CUDA_ERROR_INVALID_HANDLE;
  Stream* s = own(stream);
  *status = !s || !s->capture ? 0 : s->capture->invalid ? 2 : 1;
  return CUDA_SUCCESS;
}
DRIVER_API cuGraphInstantiateWithFlags(Graph** executable, Graph* graph, unsigned long long) {
  DRIVER_ENTER;
  calls.objects++;
  if (!graphs.count(graph)) return CUDA_ERROR_INVALID_HANDLE;
  *executable = new Graph(*graph);
  executables[*executable].reset(*executable);
  return CUDA_SUCCESS;
}
DRIVER_API cuGraphUpload(Graph* executable, void*) {
  DRIVER_ENTER;
  return executables.count(executable) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
DRIVER_API cuGraphLaunch(Graph* executable, void* stream) {
  DRIVER_ENTER;
  if (!executables.count(executable) || !valid(stream)) return CUDA_ERROR_INVALID_HANDLE;
  return stream_submit(stream, [graph = executables[executable]] {
    CUresult rc = replay(*graph);
    forget_early();  // what an error has kept from running
    return rc;
  });
}
DRIVER_API cuGraphGetNodes(Graph* graph, void**, size_t* count) {
  DRIVER_ENTER;
  if (!graphs.count(graph)) return CUDA_ERROR_INVALID_HANDLE;
  *count = graph->steps.size();
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
  return executables.erase(executable) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/** From the next call on: 1, work waits until somebody waits for it; 0, it runs when it is submitted. */
DRIVER_API emu_late_streams(int on) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  run_all(false);
  late = on;
  return CUDA_SUCCESS;
}
