// The process is a JVM as a rule, which uses SIGSEGV itself: faults that are not a kernel's go on to the handler that
// was there before. The handler runs on the fiber that faulted and simply leaves it (fail), which is safe because the
// fault came from the kernel's own load or store, at a point where no lock is held.
#include "fault.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>

#include <cstdint>

#include "device_memory.h"
#include "scheduler.h"

namespace emu {

#if defined(EMU_ASAN) || defined(EMU_TSAN)
void faults_catch() {}  // the sanitizers report faults with a stack trace
void faults_restore() {}
#else

static struct sigaction before[2];
static const int SIGNALS[2] = {SIGSEGV, SIGBUS};
static pthread_t launching;

static void pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction& old = before[signal == SIGSEGV ? 0 : 1];
  if (old.sa_flags & SA_SIGINFO) {
    old.sa_sigaction(signal, info, context);
  } else if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) {
    old.sa_handler(signal);
  } else {
    sigaction(signal, &old, nullptr);  // and the instruction faults again
  }
}

static void on_fault(int signal, siginfo_t* info, void* context) {
  if (!current || !pthread_equal(launching, pthread_self())) {
    pass_on(signal, info, context);
    return;
  }
  uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
  const CudaThread& t = running();
  long in_shared = static_cast<long>(address - reinterpret_cast<uintptr_t>(t.view.shared));
  // shared and device memory may have been mapped side by side
  if (in_shared > -(1 << 20) && in_shared < 1 << 20 && !device_memory_maps(address)) {
    fail("illegal access: offset %ld of %u bytes of shared memory, after %s:%d", in_shared, t.view.shared_bytes,
         t.site.file, t.site.line);
  }
  fail("illegal access: %s, after %s:%d", device_memory_describe(address).c_str(), t.site.file, t.site.line);
}

/** EMU_FAULTS=0: under -Xcheck:jni a JVM says so where a handler of its own is not in place. */
static bool left_alone() {
  static const char* text = getenv("EMU_FAULTS");
  return text && !strcmp(text, "0");
}

void faults_catch() {
  if (left_alone()) return;
  launching = pthread_self();
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  // NODEFER: the handler is left by a switch of stacks and never returns
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  for (int i = 0; i < 2; i++) sigaction(SIGNALS[i], &action, &before[i]);
}

void faults_restore() {
  if (left_alone()) return;
  for (int i = 0; i < 2; i++) sigaction(SIGNALS[i], &before[i], nullptr);
}
#endif

}  // namespace emu
