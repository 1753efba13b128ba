package dev.loupe.cuda;

import dev.loupe.cuda.driver.LaunchResources;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The last launch on a GPU, how many there were, and what launches take while somebody asks. On the
 * GPU's thread alone.
 */
final class LaunchLog {
  private @Nullable Launch last;
  private long count;
  private @Nullable List<LaunchResources> watched;

  /** A launch is about to be put on a stream. */
  void launched(Launch launch) {
    last = launch;
    count++;
    if (watched != null) {
      watched.add(launch.resources());
    }
  }

  /** What a failure is likely about; null before the first launch. */
  @Nullable Launch last() {
    return last;
  }

  /** Launches so far. */
  long count() {
    return count;
  }

  /** As {@link Gpu#resources} has it. */
  List<LaunchResources> resources(Runnable work) {
    List<LaunchResources> launches = new ArrayList<>();
    watched = launches;
    try {
      work.run();
    } finally {
      watched = null;
    }
    return launches;
  }
}
