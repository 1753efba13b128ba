package dev.loupe.cuda.probe;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Kernel;
import dev.loupe.cuda.RawDriver;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.ptx.GlobalMemory;
import dev.loupe.cuda.ptx.Machine;
import dev.loupe.cuda.ptx.Module;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import jcuda.NativePointerObject;
import jcuda.Pointer;
import org.jspecify.annotations.Nullable;

/** Runs probe kernels on arrays, which they read and write. */
interface ProbeDevice {
  /** How a kernel is launched, along x. */
  record Shape(int blocks, int threads, int sharedBytes, boolean cooperative) {
    static Shape of(int threads, int sharedBytes) {
      return new Shape(1, threads, sharedBytes, false);
    }

    /** A thread for each of n. */
    static Shape each(int n) {
      return new Shape(Math.ceilDiv(n, 128), 128, 0, false);
    }
  }

  /** True if the kernels are those of a card of this compute capability, times ten, or later. */
  boolean has(int computeCapability);

  /**
   * Runs a kernel to its end.
   *
   * @param arguments arrays of int or float, and ints
   */
  void run(String kernel, Shape shape, Object... arguments);

  private static MemorySegment segment(Object array) {
    return array instanceof int[] ints
        ? MemorySegment.ofArray(ints)
        : MemorySegment.ofArray((float[]) array);
  }

  /** The interpreter, with PTX of probes.cu. */
  record Interpreted(Module ptx) implements ProbeDevice {
    @Override
    public boolean has(int computeCapability) {
      String target = ptx.target().replaceAll("\\D", "");
      return Integer.parseInt(target) >= computeCapability;
    }

    @Override
    public void run(String kernel, Shape shape, Object... arguments) {
      GlobalMemory memory = new GlobalMemory();
      long[] values = new long[arguments.length];
      for (int i = 0; i < values.length; i++) {
        values[i] =
            arguments[i] instanceof Integer value ? value : memory.add(segment(arguments[i]));
      }
      Machine.Launch launch =
          new Machine.Launch(
              new Machine.Size(shape.blocks(), 1, 1),
              new Machine.Size(shape.threads(), 1, 1),
              shape.sharedBytes(),
              shape.cooperative());
      new Machine(memory).run(ptx.entry(kernel), launch, values);
    }

    @Override
    public String toString() {
      return "PTX for " + ptx.target();
    }
  }

  /** The emulator, with what g++ made of probes.cu. */
  record Emulated() implements ProbeDevice {
    @Override
    public boolean has(int computeCapability) {
      return computeCapability <= 80;
    }

    @Override
    public void run(String kernel, Shape shape, Object... arguments) {
      byte[] image = "// emulated".getBytes(StandardCharsets.US_ASCII);
      List<DeviceBuffer> buffers = new ArrayList<>();
      try (Gpu gpu = Gpu.open(0, (file, computeCapability, driver) -> image)) {
        // the stand-in wants a null behind the last, to see lists that are too short
        @Nullable NativePointerObject[] pointers = new NativePointerObject[arguments.length + 1];
        for (int i = 0; i < arguments.length; i++) {
          if (arguments[i] instanceof Integer value) {
            pointers[i] = Pointer.to(new int[] {value});
          } else {
            MemorySegment array = segment(arguments[i]);
            DeviceBuffer buffer = gpu.allocate(Element.I32, array.byteSize() / 4);
            buffer.upload(array);
            buffers.add(buffer);
            pointers[i] = RawDriver.parameter(buffer);
          }
        }
        launch(gpu, gpu.kernel("probes", kernel), shape, Pointer.to(pointers));
        int next = 0;
        for (Object argument : arguments) {
          if (!(argument instanceof Integer)) {
            buffers.get(next++).download(segment(argument));
          }
        }
        buffers.forEach(DeviceBuffer::close);
      }
    }

    private static void launch(Gpu gpu, Kernel kernel, Shape shape, Pointer parameters) {
      if (shape.cooperative()) {
        RawDriver.launchCooperatively(
            gpu, kernel, shape.blocks(), shape.threads(), shape.sharedBytes(), parameters);
      } else {
        RawDriver.launch(
            gpu, kernel, shape.blocks(), shape.threads(), shape.sharedBytes(), parameters);
      }
    }

    @Override
    public String toString() {
      return "emulator";
    }
  }
}
