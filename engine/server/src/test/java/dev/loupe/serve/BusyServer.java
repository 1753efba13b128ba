package dev.loupe.serve;

import java.time.Duration;
import java.util.Optional;

/** A server that is kept busy for as long as a test needs. */
final class BusyServer {
  /** The most that the demo model can be kept busy with: some seconds. */
  static final String LONG = "{'max_tokens': 255, 'n': 64, 'seed': 1%s}";

  /** Half of its tokens: with fewer it was stopped, on however slow a machine. */
  static final int HALF = 255 * 64 / 2;

  static final String WAITS = "{'max_tokens': 5, 'seed': 1}";

  private BusyServer() {}

  static ServerOptions options(int queue, int slots, long seconds) {
    return new ServerOptions(
        "127.0.0.1", 0, Optional.empty(), queue, slots, Duration.ofSeconds(seconds), Served.MODEL);
  }

  static long written(Served served) {
    return Long.parseLong(served.metric("loupe_generated_tokens_total"));
  }

  static void awaitRunning(Served served, int waiting) throws InterruptedException {
    Served.await(
        "1 runs, %d wait".formatted(waiting),
        () ->
            served.server().places().running() == 1
                && served.server().places().waiting() == waiting);
  }
}
