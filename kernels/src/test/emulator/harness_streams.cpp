// Tests of the driver's streams, events and graphs: what CUDA allows works, what it forbids gives its error.
#include "harness.h"

using namespace harness;

extern "C" {
int cuStreamCreate(void** stream, unsigned flags);
int cuStreamDestroy_v2(void* stream);
int cuStreamSynchronize(void* stream);
int cuStreamWaitEvent(void* stream, void* event, unsigned);
int cuStreamBeginCapture_v2(void* stream, int mode);
int cuStreamEndCapture(void* stream, void** graph);
int cuStreamIsCapturing(void* stream, int* status);
int cuEventCreate(void** event, unsigned);
int cuEventDestroy_v2(void* event);
int cuEventRecord(void* event, void* stream);
int cuEventQuery(void* event);
int cuEventSynchronize(void* event);
int emu_late_streams(int on);
int cuEventElapsedTime(float* milliseconds, void* start, void* end);
int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long);
int cuGraphLaunch(void* executable, void* stream);
int cuGraphDestroy(void* graph);
int cuGraphExecDestroy(void* executable);
int cuMemcpyHtoDAsync_v2(CUdeviceptr, const void*, size_t, void* stream);
int cuMemcpyDtoHAsync_v2(void*, CUdeviceptr, size_t, void* stream);
int cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, void* stream);
int cuMemsetD32Async(CUdeviceptr, unsigned value, size_t n, void* stream);
int cuMemHostAlloc(void** memory, size_t bytes, unsigned);
int cuMemFreeHost(void* memory);
int cuStreamQuery(void* stream);
int cuModuleUnload(void* module);
int emu_lose_card(long long after, int error);
int emu_revive();
int emu_card(int compute_capability, int driver_version, int devices, long long memory);
}

namespace {

const int UNSUPPORTED = 900, INVALIDATED = 901, UNMATCHED = 903, UNJOINED = 904, ISOLATION = 905, IMPLICIT = 906,
          CAPTURED_EVENT = 907, ECC = 214;

/** Two streams and two events. */
struct Streams {
  Streams() {
    for (void** s : {&a, &b}) check(cuStreamCreate(s, 0), "cuStreamCreate");
    for (void** e : {&fork, &done}) check(cuEventCreate(e, 0), "cuEventCreate");
  }
  ~Streams() {
    for (void* s : {a, b}) cuStreamDestroy_v2(s);
    for (void* e : {fork, done}) cuEventDestroy_v2(e);
  }
  void begin() { check(cuStreamBeginCapture_v2(a, 0), "cuStreamBeginCapture"); }
  void begin_and_fork() {
    begin();
    check(cuEventRecord(fork, a), "record");
    check(cuStreamWaitEvent(b, fork, 0), "wait");
  }
  int end() {
    cuGraphDestroy(graph);
    return cuStreamEndCapture(a, &graph);
  }
  void *a, *b, *fork, *done, *graph = nullptr;
};

const int N = 64 * 8;

/** Floats that the card reaches by itself; others have no place in a graph. */
struct Pinned {
  explicit Pinned(float value) {
    check(cuMemHostAlloc(reinterpret_cast<void**>(&values), N * 4, 0), "cuMemHostAlloc");
    std::fill(values, values + N, value);
  }
  ~Pinned() { cuMemFreeHost(values); }
  std::vector<float> content() const { return {values, values + N}; }
  float* values;
};

}  // namespace

CASE(self_graph) {
  Streams s;
  Buffer<float> x(N), y(N), z(N);
  Pinned in(1), out(0), zeros(-1);
  s.begin_and_fork();
  check(cuMemcpyHtoDAsync_v2(x.address, in.values, N * 4, s.a), "upload");
  check(cuMemsetD32Async(z.address, 0, N, s.b), "fill");
  launch_on(s.a, "planted_wait", {1}, {64}, 64 * 32, x, y, 0);  // y = x
  check(cuEventRecord(s.done, s.b), "record");
  check(cuStreamWaitEvent(s.a, s.done, 0), "wait");
  check(cuMemcpyDtoHAsync_v2(zeros.values, z.address, N * 4, s.a), "download");
  check(cuMemcpyDtoDAsync_v2(z.address, y.address, N * 4, s.a), "copy");
  check(cuMemcpyDtoHAsync_v2(out.values, z.address, N * 4, s.a), "download");
  check(s.end(), "end");
  expect_equal("nothing has run yet", out.values[0] + zeros.values[0], -1);
  void* executable;
  check(cuGraphInstantiateWithFlags(&executable, s.graph, 0), "instantiate");
  check(cuGraphDestroy(s.graph), "destroy");  // what was instantiated lives on
  s.graph = nullptr;
  for (int round = 1; round <= 3; round++) {
    for (int i = 0; i < N; i++) in.values[i] = round * 1000 + i;
    check(cuGraphLaunch(executable, round == 2 ? s.b : s.a), "launch");
    check(cuStreamSynchronize(round == 2 ? s.b : s.a), "synchronise");
    expect_near("out", out.content(), std::vector<double>(in.values, in.values + N), 0);
    expect_near("zeros", zeros.content(), std::vector<double>(N), 0);
  }
  s.begin();
  check(cuGraphLaunch(executable, s.a), "a graph in a graph");
  check(s.end(), "end");
  check(cuGraphExecDestroy(executable), "destroy");
  expect_equal("launch of what is gone", cuGraphLaunch(executable, s.a), 400);
  check(cuGraphInstantiateWithFlags(&executable, s.graph, 0), "instantiate");
  in.values[0] = 5;
  check(cuGraphLaunch(executable, s.a), "launch");
  expect_equal("out", out.values[0], 5);
  cuGraphExecDestroy(executable);
  cuGraphDestroy(s.graph);
}

CASE(self_graph_of_freed_memory) {
  Streams s;
  void* executable;
  {
    Buffer<float> x(N);
    s.begin();
    check(cuMemsetD32Async(x.address, 0, N, s.a), "fill");
    check(s.end(), "end");
  }
  check(cuGraphInstantiateWithFlags(&executable, s.graph, 0), "instantiate");
  expect_equal("launch", cuGraphLaunch(executable, s.a), 700);
  cuGraphExecDestroy(executable);
  cuGraphDestroy(s.graph);
}

CASE(self_late_streams) {
  Streams s;
  Buffer<float> x(N), y(N);
  check(emu_late_streams(1), "late");
  for (bool waits : {false, true}) {
    check(cuMemsetD32Async(x.address, 0, N, s.a), "fill");
    check(cuStreamSynchronize(s.a), "synchronise");
    check(cuMemsetD32Async(x.address, 5, N, s.a), "fill");
    check(cuEventRecord(s.fork, s.a), "record");
    check(cuMemsetD32Async(x.address, 7, N, s.a), "fill");
    if (waits) check(cuStreamWaitEvent(s.b, s.fork, 0), "wait");
    check(cuMemcpyDtoDAsync_v2(y.address, x.address, N * 4, s.b), "copy");
    check(cuEventRecord(s.done, s.b), "record");
    check(cuEventSynchronize(s.done), "synchronise");
    unsigned first;
    memcpy(&first, reinterpret_cast<void*>(y.address), 4);
    expect_equal(waits ? "what was there at the fork" : "what was there before", first, waits ? 5 : 0);
  }
  check(emu_late_streams(0), "not late any more");
  unsigned last;
  memcpy(&last, reinterpret_cast<void*>(x.address), 4);
  expect_equal("all work is done at last", last, 7);
}

/** A branch that the rest of a graph does not wait for meets what the rest has done. */
CASE(self_late_branch_of_a_graph) {
  Streams s;
  Buffer<float> x(N), y(N);
  for (bool waits : {false, true}) {
    s.begin();
    check(cuMemsetD32Async(x.address, 5, N, s.a), "fill");
    check(cuEventRecord(s.fork, s.a), "record");
    check(cuStreamWaitEvent(s.b, s.fork, 0), "wait");
    check(cuMemcpyDtoDAsync_v2(y.address, x.address, N * 4, s.b), "copy");
    check(cuEventRecord(s.done, s.b), "record");
    if (waits) check(cuStreamWaitEvent(s.a, s.done, 0), "wait");
    check(cuMemsetD32Async(x.address, 7, N, s.a), "fill");
    if (!waits) check(cuStreamWaitEvent(s.a, s.done, 0), "wait");
    check(s.end(), "end");
    void* executable;
    check(cuGraphInstantiateWithFlags(&executable, s.graph, 0), "instantiate");
    check(cuGraphLaunch(executable, s.a), "launch");
    check(cuStreamSynchronize(s.a), "synchronise");
    unsigned first;
    memcpy(&first, reinterpret_cast<void*>(y.address), 4);
    expect_equal(waits ? "what was there at the fork" : "what came after", first, waits ? 5 : 7);
    cuGraphExecDestroy(executable);
  }
  cuGraphDestroy(s.graph);
  s.graph = nullptr;
}

CASE(self_a_lost_context_takes_its_capture_along) {
  void *context, *stream, *graph;
  CUdeviceptr memory;
  emu_revive();  // other cases lose their card, too
  check(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
  check(cuStreamCreate(&stream, 0), "cuStreamCreate");
  check(cuStreamBeginCapture_v2(stream, 1), "begin");
  emu_lose_card(0, ECC);
  expect_equal("the card is lost", cuStreamEndCapture(stream, &graph), ECC);
  expect_equal("end", cuStreamEndCapture(stream, &graph), ECC);
  expect_equal("destroy", cuCtxDestroy_v2(context), ECC);
  emu_revive();
  check(cuMemAlloc_v2(&memory, 4), "nothing is captured any more");
  check(cuMemFree_v2(memory), "free");
}

CASE(self_capture_refuses) {
  Streams s;
  Buffer<float> x(N);
  int status;
  CUdeviceptr memory;
  void* pinned;
  Pinned kept(0);
  std::vector<float> host(N);
  expect_equal("end without beginning", s.end(), 401);
  expect_equal("the default stream", cuStreamBeginCapture_v2(nullptr, 0), UNSUPPORTED);

  // each makes the capture invalid
  std::function<int()> forbidden[] = {[&] { return cuStreamSynchronize(s.a); }, [] { return cuCtxSynchronize(); },
                                      [&] { return cuMemAlloc_v2(&memory, 4); },
                                      [&] { return cuMemFree_v2(x.address); },
                                      [&] { return cuMemHostAlloc(&pinned, 4, 0); },
                                      [&] { return cuMemFreeHost(kept.values); },
                                      [&] { return cuMemcpyHtoDAsync_v2(x.address, host.data(), N * 4, s.a); },
                                      [&] { return cuMemcpyDtoHAsync_v2(host.data(), x.address, N * 4, s.a); },
                                      [&] { return cuStreamQuery(s.a); },
                                      [] {
                                        void* module;
                                        emu_card(-1, 12020, -1, -1);  // newer drivers load in captures
                                        int rc = cuModuleLoadData(&module, "// emulated");
                                        emu_card(-1, 13000, -1, -1);
                                        return rc;
                                      }};
  for (auto& call : forbidden) {
    s.begin();
    expect_equal("in a capture", call(), UNSUPPORTED);
    expect_equal("status", (cuStreamIsCapturing(s.a, &status), status), 2);
    expect_equal("work in an invalid capture", cuMemsetD32Async(x.address, 0, N, s.a), INVALIDATED);
    expect_equal("end", s.end(), INVALIDATED);
    expect_equal("status", (cuStreamIsCapturing(s.a, &status), status), 0);
  }
  s.begin();
  expect_equal("a copy on the default stream", cuMemcpyHtoD_v2(x.address, host.data(), N * 4), IMPLICIT);
  expect_equal("end", s.end(), INVALIDATED);
  check(cuStreamBeginCapture_v2(s.a, 2), "a relaxed capture");
  check(cuMemAlloc_v2(&memory, 4), "allocates");
  check(cuMemFree_v2(memory), "frees");
  expect_equal("begin twice", cuStreamBeginCapture_v2(s.a, 2), 401);
  check(s.end(), "end");

  s.begin_and_fork();
  check(cuMemsetD32Async(x.address, 0, N, s.b), "fill");
  expect_equal("a stream that was not joined", s.end(), UNJOINED);
  s.begin_and_fork();
  check(cuMemsetD32Async(x.address, 0, N, s.b), "fill");
  check(cuEventRecord(s.done, s.b), "record");
  check(cuMemsetD32Async(x.address, 0, N, s.b), "fill");
  check(cuStreamWaitEvent(s.a, s.done, 0), "wait");
  expect_equal("joined before its last work", s.end(), UNJOINED);
  s.begin_and_fork();
  void* graph;
  expect_equal("end on the other stream", cuStreamEndCapture(s.b, &graph), UNMATCHED);
  expect_equal("end", s.end(), INVALIDATED);
  check(cuStreamSynchronize(s.b), "the other stream is free again");
}

/** Of late streams, what was asked for is not done yet, and copies of memory that is not pinned are. */
CASE(self_late_queries_and_copies) {
  Streams s;
  Buffer<float> x(N);
  float elapsed;
  void* untimed;
  check(cuEventCreate(&untimed, 2), "an event without timing");
  Pinned in(1), out(0);
  std::vector<float> loose(N, 3), back(N);
  check(emu_late_streams(1), "late");
  check(cuEventRecord(s.fork, s.a), "record");
  check(cuMemcpyHtoDAsync_v2(x.address, in.values, N * 4, s.a), "upload");
  check(cuEventRecord(s.done, s.a), "record");
  check(cuEventRecord(untimed, s.a), "record");
  in.values[0] = 2;  // the copy is yet to run
  expect_equal("the stream", cuStreamQuery(s.b), 0);
  expect_equal("elapsed", cuEventElapsedTime(&elapsed, s.fork, s.done), 600);
  expect_equal("the event", cuEventQuery(s.done), 600);
  check(cuEventQuery(s.done), "the event after one that asked");
  check(cuEventElapsedTime(&elapsed, s.fork, s.done), "elapsed");
  expect_equal("without timing", cuEventElapsedTime(&elapsed, s.fork, untimed), 400);
  check(cuMemcpyDtoHAsync_v2(out.values, x.address, N * 4, s.a), "download");
  expect_equal("the stream", cuStreamQuery(s.a), 600);
  check(cuStreamSynchronize(s.a), "synchronise");
  expect_equal("what was pinned is read when the copy runs", out.values[0], 2);
  check(cuMemcpyHtoDAsync_v2(x.address, loose.data(), N * 4, s.a), "upload");
  loose[0] = 4;
  check(cuMemcpyDtoHAsync_v2(back.data(), x.address, N * 4, s.a), "download");
  expect_equal("what was not, at the call, and brought before it returns", back[0], 3);
  check(emu_late_streams(0), "not late any more");
  cuEventDestroy_v2(untimed);
}

CASE(self_events) {
  Streams s;
  float elapsed = -1;
  expect_equal("time of an event that was not recorded", cuEventElapsedTime(&elapsed, s.fork, s.done), 400);
  check(cuEventQuery(s.fork), "never recorded counts as done");
  check(cuStreamWaitEvent(s.a, s.fork, 0), "nothing to wait for");
  s.begin();
  check(cuStreamWaitEvent(s.a, s.fork, 0), "nothing to wait for in a capture either");
  check(s.end(), "end");
  check(cuEventRecord(s.fork, s.a), "record");
  check(cuStreamWaitEvent(s.b, s.fork, 0), "wait");
  check(cuEventRecord(s.done, s.b), "record");
  check(cuEventElapsedTime(&elapsed, s.fork, s.done), "elapsed");
  expect_equal("elapsed is positive", elapsed >= 0, 1);
  check(cuEventElapsedTime(&elapsed, s.done, s.fork), "elapsed");
  expect_equal("elapsed backwards", elapsed <= 0, 1);

  s.begin();
  expect_equal("wait for work before the capture", cuStreamWaitEvent(s.a, s.fork, 0), ISOLATION);
  expect_equal("end", s.end(), INVALIDATED);
  s.begin();
  check(cuEventRecord(s.fork, s.a), "record");
  check(s.end(), "end");
  expect_equal("query of a captured event", cuEventQuery(s.fork), CAPTURED_EVENT);
  expect_equal("wait for it", cuStreamWaitEvent(s.b, s.fork, 0), CAPTURED_EVENT);
  expect_equal("it has no time", cuEventElapsedTime(&elapsed, s.fork, s.done), 400);
  check(cuEventRecord(s.fork, s.a), "record");
  check(cuEventQuery(s.fork), "an event like any other again");
  cuGraphDestroy(s.graph);
  void* gone = s.done;
  check(cuEventDestroy_v2(s.done), "destroy");
  expect_equal("record of what is gone", cuEventRecord(gone, s.a), 400);
}
