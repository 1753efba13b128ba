#include "fiber.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef EMU_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
extern "C" void AnnotateIgnoreReadsBegin(const char*, int);
extern "C" void AnnotateIgnoreReadsEnd(const char*, int);
extern "C" void AnnotateIgnoreWritesBegin(const char*, int);
extern "C" void AnnotateIgnoreWritesEnd(const char*, int);
#endif

namespace emu {

static const size_t STACK_BYTES = 256 * 1024;
static const size_t PAGE = 4096;

void fiber_create(Fiber& fiber) {
  void* mapped = mmap(nullptr, STACK_BYTES + PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    perror("emulator: no memory for a thread's stack");
    abort();
  }
  mprotect(mapped, PAGE, PROT_NONE);
  fiber.stack = static_cast<char*>(mapped) + PAGE;
  fiber.asan_stack = fiber.stack;
  fiber.asan_stack_bytes = STACK_BYTES;
#ifdef EMU_TSAN
  fiber.tsan_fiber = __tsan_create_fiber(0);
#endif
}

void fiber_renew(Fiber& fiber) {
  (void)fiber;
#ifdef EMU_TSAN
  __tsan_destroy_fiber(fiber.tsan_fiber);
  fiber.tsan_fiber = __tsan_create_fiber(0);
#endif
}

void fiber_adopt(Fiber& host) {
  (void)host;
#ifdef EMU_ASAN
  pthread_attr_t attributes;
  void* lowest;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &lowest, &host.asan_stack_bytes);
  pthread_attr_destroy(&attributes);
  host.asan_stack = lowest;
#endif
#ifdef EMU_TSAN
  host.tsan_fiber = __tsan_get_current_fiber();
#endif
}

#ifndef EMU_UCONTEXT
// Saves the registers that the System V ABI asks a callee to keep, and changes stacks. The floating-point
// control words are the same for all fibers and stay as they are.
extern "C" void emu_switch_stack(void** save, void* to);
asm(R"(
.text
.globl emu_switch_stack
.hidden emu_switch_stack
.type emu_switch_stack, @function
emu_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_switch_stack, . - emu_switch_stack
)");
#endif

void fiber_prepare(Fiber& fiber, void (*entry)()) {
#ifdef EMU_ASAN
  ASAN_UNPOISON_MEMORY_REGION(fiber.stack, STACK_BYTES);  // what a dropped run has left behind
  fiber.asan_fake_stack = nullptr;
#endif
#ifdef EMU_UCONTEXT
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = STACK_BYTES;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, entry, 0);
#else
  // What emu_switch_stack pops: six registers, then entry as the return address. One more word below the top
  // leaves the stack as after a call (16 n + 8), which entry expects.
  void** sp = reinterpret_cast<void**>(fiber.stack + STACK_BYTES - 64);
  *--sp = nullptr;
  *--sp = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; i++) *--sp = nullptr;
  fiber.stack_pointer = sp;
#endif
}

void fiber_switch(Fiber& from, Fiber& to, bool ends) {
  (void)ends;
#ifdef EMU_ASAN
  __sanitizer_start_switch_fiber(ends ? nullptr : &from.asan_fake_stack, to.asan_stack, to.asan_stack_bytes);
#endif
#ifdef EMU_TSAN
  // no_sync: a switch orders nothing, only the barriers do. That is what makes a missing one show in any schedule.
  __tsan_switch_to_fiber(to.tsan_fiber, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef EMU_UCONTEXT
  swapcontext(&from.context, &to.context);
#else
  emu_switch_stack(&from.stack_pointer, to.stack_pointer);
#endif
#ifdef EMU_ASAN
  __sanitizer_finish_switch_fiber(from.asan_fake_stack, nullptr, nullptr);
#endif
}

#ifdef EMU_TSAN
static void ignore_end() {
  AnnotateIgnoreWritesEnd("", 0);
  AnnotateIgnoreReadsEnd("", 0);
}

RuntimeScope::RuntimeScope(Fiber& fiber) : fiber(fiber) {
  fiber.in_runtime++;
  AnnotateIgnoreReadsBegin("", 0);
  AnnotateIgnoreWritesBegin("", 0);
}

RuntimeScope::~RuntimeScope() {
  fiber.in_runtime--;
  ignore_end();
}

void tsan_release(void* tag) { __tsan_release(tag); }
void tsan_acquire(void* tag) { __tsan_acquire(tag); }
#endif

void fiber_entered(Fiber& fiber) {
  (void)fiber;
#ifdef EMU_ASAN
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
#ifdef EMU_TSAN
  for (; fiber.in_runtime > 0; fiber.in_runtime--) ignore_end();  // of a run that was dropped
#endif
}

}  // namespace emu
