package dev.loupe.bench;

import dev.loupe.Loupe;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.OptionalLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * What is held, in bytes.
 *
 * @param peak of the process since it began, as Linux counts it: pages of files that it mapped are
 *     among them, those of a card are not; empty elsewhere
 * @param heap of Java in use, garbage included
 * @param card memory of the GPU in use, by whomever; empty on the CPU
 */
public record Memory(OptionalLong peak, long heap, OptionalLong card) {
  static final Memory NONE = new Memory(OptionalLong.empty(), 0, OptionalLong.empty());

  private static final Pattern PEAK = Pattern.compile("(?m)^VmHWM:\\s*([0-9]{1,15}) kB$");

  static Memory now(Loupe loupe) {
    return new Memory(
        peak(Path.of("/proc/self/status")),
        ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed(),
        loupe.deviceBytesInUse());
  }

  /** The peak that a file like {@code /proc/self/status} tells. */
  static OptionalLong peak(Path status) {
    try {
      Matcher line = PEAK.matcher(Files.readString(status));
      return line.find()
          ? OptionalLong.of(Long.parseLong(line.group(1)) << 10)
          : OptionalLong.empty();
    } catch (IOException e) {
      return OptionalLong.empty(); // no Linux
    }
  }

  /** The larger of both in each. */
  Memory orMore(Memory other) {
    return new Memory(
        larger(peak, other.peak), Math.max(heap, other.heap), larger(card, other.card));
  }

  private static OptionalLong larger(OptionalLong a, OptionalLong b) {
    return a.isEmpty() || (b.isPresent() && b.getAsLong() > a.getAsLong()) ? b : a;
  }
}
