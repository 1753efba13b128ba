package dev.loupe.cuda.measure;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Every value of every round arrives at every block, and a stream reads every word once. */
@OnDevice
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class MicroBenchmarkTest {
  private final Gpu gpu = Emulator.open();
  private final MicroBenchmark micro = new MicroBenchmark(gpu);

  @AfterEach
  void close() {
    Emulator.forward();
    assertEquals(0, gpu.liveBuffers().size());
    gpu.close();
  }

  @ParameterizedTest
  @EnumSource
  void everyBlockSeesEveryRoundOfEveryBlock(MicroBenchmark.Edge edge) {
    for (int blocks : new int[] {1, 2, 3, 4}) {
      check(edge, blocks);
      for (Runnable schedule : Emulator.otherSchedules()) {
        schedule.run();
        check(edge, blocks);
      }
      Emulator.forward();
    }
  }

  private void check(MicroBenchmark.Edge edge, int blocks) {
    int rounds = 7;
    try (MicroBenchmark.Rounds run = micro.new Rounds(edge, blocks, rounds, 1 << 22)) {
      for (int time = 0; time < 2; time++) { // nothing is left of the first
        run.milliseconds();
        assertFalse(run.aborted());
        int[] expected = new int[blocks * blocks];
        Arrays.fill(expected, rounds);
        assertEquals(Arrays.toString(expected), Arrays.toString(run.right()), "blocks " + blocks);
      }
    }
  }

  /** A wait for what does not come ends, and all blocks with it. */
  @ParameterizedTest
  @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "NODE")
  void aWaitHasAnEnd(MicroBenchmark.Edge edge) {
    try (MicroBenchmark.Rounds run = micro.new Rounds(edge, 3, 2, 0)) {
      run.milliseconds();
      assertTrue(run.aborted());
      assertEquals(0, Arrays.stream(run.right()).sum());
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 2, 3, 4})
  void aStreamReadsEveryWordOnce(int stages) {
    for (int chunks : new int[] {1, 4, 29}) {
      int[] words = new Random(chunks).ints(chunks * 4096L).toArray();
      try (DeviceBuffer x = gpu.allocate(Element.I32, words.length);
          MicroBenchmark.Stream stream = micro.new Stream(x, stages)) {
        x.upload(words);
        stream.launch();
        assertEquals(Arrays.stream(words).sum(), stream.sum(), chunks + " chunks");
      }
    }
  }

  /** Drivers before 12.3 load no kernels while a graph is recorded. */
  @Test
  @OnDevice(emulated = true)
  void anOlderDriverRecordsTheNodes() {
    Emulator.card(-1, 12_020, -1, -1);
    try (Gpu old = Emulator.open()) {
      List<String> lines = new ArrayList<>();
      new MicroBenchmark(old).time(MicroBenchmark.Edge.NODE, 2, 3, 1, lines::add);
      assertEquals(1, lines.size());
    } finally {
      Emulator.usualCard();
    }
  }

  @Test
  @OnDevice(emulated = true)
  void theBenchmarkHasALineForEach() {
    List<String> lines = new ArrayList<>();
    for (MicroBenchmark.Edge edge : MicroBenchmark.Edge.values()) {
      micro.time(edge, 2, 4, 1, lines::add);
    }
    micro.timeStreams(300_000, 1, lines::add);
    assertEquals(4 + 5, lines.size(), lines.toString());
  }
}
