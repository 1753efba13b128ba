// EXPORT_KERNEL: makes a kernel known by name, with the sizes of its parameters and a function that calls it.
#pragma once
#include <cstddef>
#include <utility>

namespace emu __attribute__((visibility("default"))) {  // a library of mutants has only these of the emulator
/** Calls a kernel with the values that parameters[i] point to, as cuLaunchKernel passes them. */
typedef void (*KernelCall)(void* const* parameters);

/**
 * Names a kernel; sizes has `count` entries in bytes. Called before main or while a library is loaded; while that is one
 * of mutants (replace_kernels), the kernel takes the place of the one of its name.
 */
void register_kernel(const char* name, KernelCall call, const int* sizes, int count);

#ifndef EMU_ONLY
#define EMU_ONLY ""
#endif
/** Whether the name of a kernel contains EMU_ONLY; the compiler leaves out the others of its file. */
constexpr bool wanted(const char* name) {
  for (;; name++) {
    int i = 0;
    while (EMU_ONLY[i] && name[i] == EMU_ONLY[i]) i++;
    if (!EMU_ONLY[i]) return true;
    if (!*name) return false;
  }
}

template <class Signature>
struct KernelOf;
template <class... A>
struct KernelOf<void (*)(A...)> {
  static_assert(((std::is_pointer_v<A> || sizeof(A) == 4 || sizeof(A) == 8) && ...),
                "kernel parameters are pointers and scalars of 4 or 8 bytes");
  template <void (*F)(A...), size_t... I>
  static void call_with(void* const* p, std::index_sequence<I...>) {
    F(*static_cast<A*>(p[I])...);
  }
  template <void (*F)(A...)>
  static void call(void* const* p) {
    call_with<F>(p, std::index_sequence_for<A...>{});
  }
  template <void (*F)(A...)>
  static int enter(const char* name) {
    static const int sizes[] = {(int)sizeof(A)..., 0};
    register_kernel(name, call<F>, sizes, sizeof...(A));
    return 0;
  }
};
}  // namespace emu

#define EXPORT_KERNEL(name) \
  [[maybe_unused]] static const int emu_registered_##name = \
      emu::wanted(#name) ? emu::KernelOf<decltype(&name)>::enter<&name>(#name) : 0;
