package dev.loupe.kernels;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;

/** The stand-in driver that runs kernels on the CPU, where that is what {@code Gpu} found. */
final class Emulator {
  /** In which order the threads of a block run between barriers. */
  enum Schedule {
    FORWARD(0),
    REVERSE(1),
    RANDOM(2);

    private final int mode;

    Schedule(int mode) {
      this.mode = mode;
    }
  }

  /** The kernels are linked into the stand-in, so any well-formed PTX will do. */
  private static final byte[] IMAGE =
      ".version 6.5\n.target sm_75\n.address_size 64\n".getBytes(StandardCharsets.US_ASCII);

  private Emulator() {}

  /** True if the driver of this process is the stand-in. */
  static boolean isDriver() {
    return CudaDriver.library().flatMap(driver -> driver.find("emu_options")).isPresent();
  }

  /** Opens GPU 0, emulated or real. */
  static Gpu open() {
    return isDriver() ? Gpu.open(0, (file, computeCapability, driver) -> IMAGE) : Gpu.open(0);
  }

  /**
   * How kernels are run from now on; on a real card, does nothing.
   *
   * @param seed of the random schedule
   * @param eager true if cp.async copies at once, false if not before it is waited for
   */
  static void options(Schedule schedule, long seed, boolean eager) {
    if (isDriver()) {
      call(
          "emu_options",
          FunctionDescriptor.ofVoid(
              ValueLayout.JAVA_INT, ValueLayout.JAVA_LONG, ValueLayout.JAVA_INT),
          schedule.mode,
          seed,
          eager ? 1 : 0);
    }
  }

  /** Device allocations that were not freed, in the whole process. */
  static long liveAllocations() {
    Object n = call("emu_live_allocations", FunctionDescriptor.of(ValueLayout.JAVA_LONG));
    return (Long) n;
  }

  private static Object call(String name, FunctionDescriptor type, Object... arguments) {
    try {
      return Linker.nativeLinker()
          .downcallHandle(CudaDriver.library().orElseThrow().findOrThrow(name), type)
          .invokeWithArguments(arguments);
    } catch (Throwable e) { // declared by every native call
      throw new IllegalStateException(name, e);
    }
  }
}
