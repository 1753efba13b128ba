package dev.loupe.cuda.emulator;

import dev.loupe.cuda.emulator.Emulator.Schedule;
import java.util.List;

/** The orders in which an emulated kernel must give the same bits. */
public final class Schedules {
  private Schedules() {}

  /** Threads in order; cp.async as late as it may be. */
  public static void forward() {
    Emulator.options(Schedule.FORWARD, 1, false);
  }

  public static List<Runnable> others() {
    return List.of(
        () -> Emulator.options(Schedule.FORWARD, 1, true),
        () -> Emulator.options(Schedule.REVERSE, 1, false),
        () -> Emulator.options(Schedule.RANDOM, 17, false),
        () -> Emulator.options(Schedule.RANDOM, 4711, true));
  }
}
