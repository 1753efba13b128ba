package dev.loupe.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.junit.jupiter.api.Test;

class CeilingsTest {
  /** A loop that left something out would be fast. */
  @Test
  void theProbeReadsEverythingOnce() {
    int lanes = Probe.vectorBits() / Float.SIZE;
    try (Arena arena = Arena.ofConfined()) {
      long bytes = Probe.wholeTurns(100_000);
      assertTrue(bytes <= 100_000 && bytes > 99_000);
      MemorySegment floats = arena.allocate(bytes + 512, 64);
      double sum = 0; // of every vector's first lane, all different from their neighbours
      for (long at = 0; at < floats.byteSize(); at += Float.BYTES) {
        boolean inside = at >= 256 && at < 256 + bytes;
        long i = (at - 256) / Float.BYTES;
        floats.set(ValueLayout.JAVA_FLOAT, at, inside ? i / lanes * 7 % 101 : Float.NaN);
        sum += inside && i % lanes == 0 ? i / lanes * 7 % 101 : 0;
      }
      for (int streams : Probe.STREAMS) {
        assertEquals(sum, Probe.read(floats, 256, bytes, streams), streams + " streams");
      }
    }
  }

  @Test
  void theProbeMultipliesAndAddsAsOftenAsItSays() {
    assertEquals(Probe.CHAINS * 1024 / 1048576.0, Probe.multiplyAdd(1024)); // exact
    assertEquals(Probe.CHAINS * Probe.vectorBits() / Float.SIZE, Probe.multiplyAdds());
  }

  /** Between what any machine does and what none does. */
  @Test
  void measuresThisMachine() {
    assertTrue(Ceilings.warmUp());
    Ceilings two = Ceilings.measure(2);
    System.out.println(two);
    assertTrue(two.readBytes() > 1e8 && two.readBytes() < 1e13, two.toString());
    assertTrue(two.multiplyAdds() > 1e9 && two.multiplyAdds() < 1e13, two.toString());
  }

  @Test
  void theBetterOfTwo() {
    Ceilings a = new Ceilings(10, 100);
    Ceilings b = new Ceilings(20, 90);
    assertEquals(new Ceilings(20, 100), a.orBetter(b));
    assertEquals(new Ceilings(20, 100), b.orBetter(a));
  }

  @Test
  void theArrayIsFarLargerThanTheCache() {
    assertEquals(256L << 20, Ceilings.arrayBytes(1 << 20));
    assertEquals(768L << 20, Ceilings.arrayBytes(96L << 20));
    assertEquals(1L << 30, Ceilings.arrayBytes(1L << 30), "and leaves memory to the model");
  }
}
