package dev.loupe.cuda.measure;

import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.CudaDriver;
import dev.loupe.cuda.driver.Element;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;

/**
 * What one run of a kernel asks of memory and arithmetic, as the counting emulator saw it: a row of
 * counts.tsv.
 *
 * @param element of the kernel
 * @param read bytes of global memory, in sectors of 32, that the warps' loads ask for, before any
 *     cache
 * @param leastRead bytes of all inputs
 * @param written likewise of the stores
 * @param leastWritten bytes of all outputs
 * @param multiplyAdds fused ones of single lanes
 * @param tensorMultiplyAdds by tensor cores
 * @param exponentials of single lanes
 * @param wavefronts of shared memory
 * @param conflicts those of the wavefronts that bank conflicts cost
 */
record Counts(
    String family,
    String variant,
    String element,
    long read,
    long leastRead,
    long written,
    long leastWritten,
    long multiplyAdds,
    long tensorMultiplyAdds,
    long exponentials,
    long wavefronts,
    long conflicts) {
  private static final String HEADER =
      "family\tvariant\telement\tread\tleast_read\twritten\tleast_written\tmultiply_adds"
          + "\ttensor_multiply_adds\texponentials\twavefronts\tconflicts";
  private static final Path FILE = Path.of("counts.tsv");
  private static final int SECTOR = 32;
  private static final int MMA = 16 * 8 * 16; // of the 16-bit elements, the only ones counted here
  private static final int MMAS = 7; // among the counts of emu_stats

  /** The committed rows. */
  static List<Counts> committed() throws IOException {
    return Files.readAllLines(FILE).stream().skip(2).map(Counts::parse).toList();
  }

  /** The compiler that the committed rows come from. */
  static String compilerOfCommitted() throws IOException {
    return Files.readAllLines(FILE).getFirst().substring(2);
  }

  /** What is to be committed. */
  static String file(String compiler, List<Counts> rows) {
    return rows.stream()
        .map(Counts::line)
        .collect(Collectors.joining("\n", "# %s\n%s\n".formatted(compiler, HEADER), "\n"));
  }

  /** The compiler of the counting emulator, which decides what stays in registers. */
  static String compiler() {
    return "g++ " + call("emu_compiler");
  }

  static Counts parse(String line) {
    String[] f = line.split("\t", -1);
    long[] n = new long[9];
    for (int i = 0; i < n.length; i++) {
      n[i] = Long.parseLong(f[i + 3]);
    }
    return new Counts(f[0], f[1], f[2], n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8]);
  }

  String line() {
    return "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d"
        .formatted(
            family,
            variant,
            element,
            read,
            leastRead,
            written,
            leastWritten,
            multiplyAdds,
            tensorMultiplyAdds,
            exponentials,
            wavefronts,
            conflicts);
  }

  /** Counts what {@code work} launches; the driver of this process is the counting one. */
  static Counts of(
      Gpu gpu,
      String family,
      String variant,
      Element element,
      long leastRead,
      long leastWritten,
      Runnable work) {
    gpu.synchronize();
    call("emu_reset_counts");
    call("emu_reset_stats");
    work.run();
    gpu.synchronize();
    long[] n = values("emu_counts", 6);
    return new Counts(
        family,
        variant,
        element.suffix(),
        n[0] * SECTOR,
        leastRead,
        n[1] * SECTOR,
        leastWritten,
        n[4],
        values("emu_stats", 8)[MMAS] * MMA,
        n[5],
        n[2],
        n[3]);
  }

  private static long[] values(String function, int count) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment values = arena.allocate(ValueLayout.JAVA_LONG, count);
      call(function, values);
      return values.toArray(ValueLayout.JAVA_LONG);
    }
  }

  private static int call(String function, MemorySegment... pointers) {
    ValueLayout[] layouts = new ValueLayout[pointers.length];
    Arrays.fill(layouts, ValueLayout.ADDRESS);
    try {
      return (int)
          Linker.nativeLinker()
              .downcallHandle(
                  CudaDriver.library().orElseThrow().findOrThrow(function),
                  FunctionDescriptor.of(ValueLayout.JAVA_INT, layouts))
              .invokeWithArguments((Object[]) pointers);
    } catch (Throwable e) { // declared by every native call
      throw new IllegalStateException(function, e);
    }
  }
}
