package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.HostBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import org.junit.jupiter.api.Test;

@OnDevice
class StepKernelsTest {
  @Test
  void movesEveryRowOnAndGathersItsResult() {
    for (int rows : new int[] {1, 7, 129}) {
      try (Gpu gpu = Emulator.open();
          DeviceBuffer state = gpu.allocate(Element.I32, 12L * (rows + 4));
          DeviceBuffer logprobs = gpu.allocate(Element.F32, rows)) {
        int lane = (rows + 3) / 4 * 4;
        DeviceBuffer[] lists = new DeviceBuffer[8];
        int[] start = new int[lane];
        for (int i = 0; i < lists.length; i++) {
          lists[i] = state.slice((long) i * lane, lane);
          int times = i + 1;
          Arrays.setAll(start, r -> 10 * times + r);
          lists[i].upload(start);
        }
        int turns = 3;
        Arrays.setAll(start, r -> r == 5 ? 99 : r % turns); // one that there is not counts as 0
        lists[7].upload(start);
        float[] odds = new float[rows];
        for (int r = 0; r < rows; r++) {
          odds[r] = -r / 8f;
        }
        logprobs.upload(odds);
        try (DeviceBuffer segments = gpu.allocate(Element.I32, 4L * rows + 4);
            HostBuffer host = gpu.pin(16L * turns * rows + 16)) {
          segments.fill((byte) 0x77);
          DeviceBuffer results = host.onDevice(Element.I32);
          host.memory().fill((byte) 0x77);
          new StepKernels(gpu)
              .advance(
                  new SampleKernels.Chosen(lists[0], logprobs, lists[1], lists[2]),
                  new StepKernels.Rows(lists[3], lists[4], lists[5], lists[6], segments, lists[7]),
                  results,
                  turns,
                  rows);
          gpu.synchronize();
          int[] got = new int[4 * rows + 4];
          segments.download(got);
          int[] gathered = host.memory().toArray(ValueLayout.JAVA_INT);
          int[] turn = new int[lane];
          lists[7].download(turn);
          int[] position = new int[lane];
          int[] place = new int[lane];
          int[] keys = new int[lane];
          lists[4].download(position);
          lists[5].download(place);
          lists[6].download(keys);
          for (int r = 0; r < rows; r++) {
            assertArrayEquals(
                new int[] {r, 1, 40 + r, 51 + r}, Arrays.copyOfRange(got, 4 * r, 4 * r + 4));
            for (int t = 0; t < turns; t++) {
              int at = 4 * (t * rows + r);
              int[] result = {10 + r, 30 + r, 20 + r, Float.floatToRawIntBits(odds[r])};
              int[] untouched = {0x77777777, 0x77777777, 0x77777777, 0x77777777};
              assertArrayEquals(
                  t == (r == 5 ? 0 : r % turns) ? result : untouched,
                  Arrays.copyOfRange(gathered, at, at + 4));
            }
            assertEquals(r == 5 ? 1 : (r + 1) % turns, turn[r]);
            assertEquals(51 + r, position[r]);
            assertEquals(61 + r, place[r]);
            assertEquals(52 + r, keys[r]);
          }
          for (int r = rows; r < lane; r++) {
            assertEquals(50 + r, position[r], "a row beyond the last");
          }
          assertEquals(0x77777777, got[4 * rows], "written beyond the last row");
          assertEquals(0x77777777, gathered[4 * turns * rows], "written beyond the last row");
        }
      }
    }
  }

  @Test
  void aListThatIsTooShortIsRefused() {
    try (Gpu gpu = Emulator.open();
        DeviceBuffer ints = gpu.allocate(Element.I32, 4);
        DeviceBuffer floats = gpu.allocate(Element.F32, 4)) {
      String message =
          assertThrows(
                  IllegalArgumentException.class,
                  () ->
                      new StepKernels(gpu)
                          .advance(
                              new SampleKernels.Chosen(ints, floats, ints, ints),
                              new StepKernels.Rows(ints, ints, ints, ints, ints, ints),
                              ints,
                              1,
                              2))
              .toString();
      assertEquals(true, message.contains("segments"), message);
    }
  }
}
