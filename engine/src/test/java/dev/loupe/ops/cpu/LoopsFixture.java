package dev.loupe.ops.cpu;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** The twins, and numbers for them in memory as unkind as that of a mapped file. */
abstract class LoopsFixture {
  final InnerLoops scalar = new ScalarLoops();
  final Random random = new Random(20_26);

  static List<InnerLoops> vectors() {
    List<InnerLoops> all = new ArrayList<>();
    for (int bits : new int[] {128, 256, 512}) {
      InnerLoops loops = VectorLoops.ofWidth(bits);
      assertEquals(bits + "-bit vectors", loops.toString());
      assertEquals(loops.toString(), loops.another().toString());
      all.add(loops);
    }
    return all;
  }

  float[] floats(int n) {
    float[] x = new float[n];
    for (int i = 0; i < n; i++) {
      x[i] = (float) random.nextGaussian();
    }
    return x;
  }

  /** Native memory, at an odd address as in a mapped file, with NaN around the numbers. */
  static MemorySegment segment(Arena arena, float[] x) {
    MemorySegment padded = arena.allocate(4L * x.length + 65, 64);
    padded.fill((byte) 0xff);
    MemorySegment inside = padded.asSlice(1, 4L * x.length);
    MemorySegment.copy(x, 0, inside, ScalarLoops.F32, 0, x.length);
    return inside;
  }

  static float[] array(MemorySegment segment) {
    float[] x = new float[(int) (segment.byteSize() / 4)];
    MemorySegment.copy(segment, ScalarLoops.F32, 0, x, 0, x.length);
    return x;
  }

  List<InnerLoops> all(InnerLoops vector) {
    return List.of(scalar, vector);
  }
}
