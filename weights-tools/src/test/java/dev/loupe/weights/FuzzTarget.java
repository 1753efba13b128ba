package dev.loupe.weights;

import com.sun.management.ThreadMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;

/** Something that reads what comes from elsewhere. */
public interface FuzzTarget {
  /** Reads a file of these bytes, or says in an {@link IOException} why not. */
  void read(byte[] bytes) throws IOException;

  /** Bytes that may be allocated beyond twice the file, one after the other included. */
  long MOST = 64 << 20;

  ThreadMXBean THREAD = (ThreadMXBean) ManagementFactory.getThreadMXBean(); // Sun's counts bytes

  /**
   * The rule for all readers: they read, or say why not in a sentence that is not endless. What
   * else they throw comes through.
   */
  static void check(FuzzTarget target, byte[] bytes) {
    try {
      target.read(bytes);
    } catch (IOException e) {
      String message = e.getMessage();
      if (message == null || message.isBlank() || message.length() > 4000 + 2 * bytes.length) {
        throw new AssertionError("no sentence: " + message, e);
      }
    }
  }

  /** Likewise, within the budget of memory. A fuzzer's own code takes some, so not there. */
  static void checkBudget(FuzzTarget target, byte[] bytes) {
    long before = THREAD.getCurrentThreadAllocatedBytes();
    check(target, bytes);
    long allocated = THREAD.getCurrentThreadAllocatedBytes() - before;
    if (allocated > MOST + 2L * bytes.length) {
      throw new AssertionError("%d bytes for a file of %d".formatted(allocated, bytes.length));
    }
  }
}
