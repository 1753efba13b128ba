package dev.loupe.cuda.probe;

import dev.loupe.cuda.RawDriver;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.ptx.GlobalMemory;
import dev.loupe.cuda.ptx.Machine;
import dev.loupe.cuda.ptx.Module;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Set;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/**
 * Has the stand-in driver's launches run by the interpreter of PTX instead of the emulator, until
 * it is closed. Memory, streams and launches stay the driver's: so what is launched is what Loupe
 * launches, and every test of a kernel can be one of its PTX.
 */
public final class PtxDriver implements AutoCloseable {
  private static final int ILLEGAL_LAUNCH = 719; // CUDA_ERROR_LAUNCH_FAILED
  private static final int SHAPE = 8; // grid, block, shared bytes, cooperative

  private final Arena arena = Arena.ofShared();
  private final KernelPtx ptx;
  private final GlobalMemory memory = new GlobalMemory(PtxDriver::allocation);
  private final Machine machine = new Machine(memory);
  private final Set<String> kernels = new TreeSet<>();
  private @Nullable Throwable failure;

  public PtxDriver(KernelPtx ptx) {
    this.ptx = ptx;
    try {
      FunctionDescriptor type =
          FunctionDescriptor.of(
              ValueLayout.JAVA_INT, ValueLayout.ADDRESS, ValueLayout.ADDRESS, ValueLayout.ADDRESS);
      MemorySegment stub =
          Linker.nativeLinker()
              .upcallStub(
                  MethodHandles.lookup()
                      .bind(
                          this,
                          "launch",
                          MethodType.methodType(
                              int.class,
                              MemorySegment.class,
                              MemorySegment.class,
                              MemorySegment.class)),
                  type,
                  arena);
      Emulator.otherMachine(stub);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Names of the kernels that ran. */
  public Set<String> kernels() {
    return kernels;
  }

  /** Instructions of warps. */
  long instructions() {
    return machine.instructions();
  }

  /** Fails with what a launch failed with. */
  public void check() {
    if (failure != null) {
      throw new AssertionError(failure.getMessage(), failure);
    }
  }

  /** Called by the driver; whatever goes wrong is an error of CUDA to it. */
  @SuppressWarnings("unused") // by the upcall
  private int launch(MemorySegment name, MemorySegment shape, MemorySegment parameters) {
    String kernel = "";
    try {
      kernel = name.reinterpret(Long.MAX_VALUE).getString(0);
      int[] of = shape.reinterpret(SHAPE * 4L).toArray(ValueLayout.JAVA_INT);
      Module.Entry entry = ptx.entry(kernel);
      Machine.Launch launch =
          new Machine.Launch(
              new Machine.Size(of[0], of[1], of[2]),
              new Machine.Size(of[3], of[4], of[5]),
              of[6],
              of[7] != 0);
      machine.run(entry, launch, values(entry, parameters));
      kernels.add(kernel);
      return 0;
    } catch (Throwable e) { // the driver's frames must not see it
      if (failure == null) {
        failure = new IllegalStateException(kernel + ": " + e.getMessage(), e);
      }
      return ILLEGAL_LAUNCH;
    }
  }

  /** What cuLaunchKernel takes: an address for each parameter. */
  private static long[] values(Module.Entry entry, MemorySegment parameters) {
    int n = entry.parameters().size();
    MemorySegment addresses = parameters.reinterpret(8L * n);
    long[] values = new long[n];
    for (int i = 0; i < n; i++) {
      int bytes = entry.parameters().get(i).bytes();
      MemorySegment value = addresses.getAtIndex(ValueLayout.ADDRESS, i).reinterpret(bytes);
      values[i] =
          bytes == 8
              ? value.get(ValueLayout.JAVA_LONG_UNALIGNED, 0)
              : value.get(ValueLayout.JAVA_INT_UNALIGNED, 0);
    }
    return values;
  }

  /** The allocation of the driver's with an address, or null. */
  private static GlobalMemory.@Nullable Range allocation(long address) {
    MemorySegment bytes = RawDriver.allocation(address);
    return bytes == null ? null : new GlobalMemory.Range(bytes.address(), bytes);
  }

  @Override
  public void close() {
    Emulator.otherMachine(MemorySegment.NULL);
    arena.close();
  }
}
