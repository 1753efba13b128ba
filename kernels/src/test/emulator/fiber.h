// Fibers: stacks that are switched by hand, so that a block's threads can stand in the middle of a kernel while
// others run. Switching tells AddressSanitizer and ThreadSanitizer, where they are built in.
#pragma once
#include <cstddef>

#if !defined(__x86_64__) && !defined(EMU_UCONTEXT)
#define EMU_UCONTEXT
#endif
#ifdef EMU_UCONTEXT
#include <ucontext.h>
#endif

namespace emu {

struct Fiber {
  void* stack_pointer = nullptr;
  char* stack = nullptr;  // null for the host's own
#ifdef EMU_UCONTEXT
  ucontext_t context;
#endif
  const void* asan_stack = nullptr;  // lowest address, and size
  size_t asan_stack_bytes = 0;
  void* asan_fake_stack = nullptr;
  void* tsan_fiber = nullptr;
  int in_runtime = 0;  // RuntimeScopes open on this fiber
};

/** Gives the fiber a stack, with a guard page below it. */
void fiber_create(Fiber& fiber);
/** Makes a Fiber of the stack that calls. */
void fiber_adopt(Fiber& host);
/** The next switch to this fiber starts entry on an empty stack; whatever it was doing is dropped. */
void fiber_prepare(Fiber& fiber, void (*entry)());
/** Lets TSan forget what calls a dropped fiber stood in. */
void fiber_renew(Fiber& fiber);
/** Leaves `from`, continues `to`; returns when someone switches to `from`. ends: `from` will not be continued. */
void fiber_switch(Fiber& from, Fiber& to, bool ends);
/** To be called first thing in entry. */
void fiber_entered(Fiber& fiber);
/** For TSan: what happened before release(tag) is ordered before what follows acquire(tag). Else nothing. */
#ifdef EMU_TSAN
void tsan_release(void* tag);
void tsan_acquire(void* tag);
#else
inline void tsan_release(void*) {}
inline void tsan_acquire(void*) {}
#endif

/**
 * While one is open, TSan does not look at what the fiber does: the emulator's own lists pass from fiber to fiber
 * without barriers. The emulator is not instrumented, but malloc, free and memcpy are TSan's even so.
 */
class RuntimeScope {
 public:
#ifdef EMU_TSAN
  explicit RuntimeScope(Fiber& fiber);
  ~RuntimeScope();

 private:
  Fiber& fiber;
#else
  explicit RuntimeScope(Fiber&) {}
  ~RuntimeScope() {}
#endif
  RuntimeScope(const RuntimeScope&) = delete;
};

}  // namespace emu
