package dev.loupe.cuda.driver;

import java.nio.charset.StandardCharsets;

/** What can be said of PTX without compiling it. */
public final class PtxText {
  private static final String ENTRY = ".visible .entry ";

  private PtxText() {}

  /** Whether an image is PTX, and not a cubin, which is an ELF file. */
  public static boolean is(byte[] image) {
    return image.length > 0 && image[0] != 0x7f;
  }

  /**
   * The text with one kernel alone, so that the driver compiles no other: all that is outside of
   * kernels, which nvcc writes from {@code .visible .entry NAME(} to a closing brace on a line of
   * its own, and the one that is named. The whole text if it has no such kernel.
   */
  public static byte[] only(byte[] ptx, String kernel) {
    StringBuilder kept = new StringBuilder();
    boolean found = false;
    boolean skipping = false;
    for (String line :
        (Iterable<String>) new String(ptx, StandardCharsets.ISO_8859_1).lines()::iterator) {
      if (line.startsWith(ENTRY)) {
        boolean wanted = line.startsWith(kernel + "(", ENTRY.length());
        found |= wanted;
        skipping = !wanted;
      }
      if (!skipping) {
        kept.append(line).append('\n');
      }
      skipping &= !line.equals("}");
    }
    return found ? kept.toString().getBytes(StandardCharsets.ISO_8859_1) : ptx;
  }
}
