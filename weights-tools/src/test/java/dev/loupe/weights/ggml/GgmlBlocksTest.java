package dev.loupe.weights.ggml;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.weights.format.CheckpointReader;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.List;
import java.util.Objects;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class GgmlBlocksTest {
  private static final int BLOCKS = 64;

  /** The bytes of a xorshift generator, each block with a finite scale in front. */
  private static byte[] blocks(int size) {
    byte[] data = new byte[BLOCKS * size];
    int x = (int) 2463534242L;
    for (int i = 0; i < data.length; i++) {
      x ^= x << 13;
      x ^= x >>> 17;
      x ^= x << 5;
      data[i] = (byte) x;
    }
    for (int b = 0; b < BLOCKS; b++) {
      short d = Float.floatToFloat16(0.03125f * (b % 7 + 1) * (b % 2 == 0 ? 1 : -1));
      data[b * size] = (byte) d;
      data[b * size + 1] = (byte) (d >> 8);
    }
    return data;
  }

  /** The hashes are of what the Python package gguf 0.19 makes of these blocks. */
  @ParameterizedTest
  @CsvSource({
    "21, 110, 025c5a6fb34b6b5a4f3a551a0880950c024e4db4b7a8cb70585e2d022f4267cc",
    "23, 136, 1a48786d17aaad0e5d45bfbc69684a8e7e779194b5dd1a8935e83bf992d02b7b"
  })
  void decodesAsGgufDoes(int type, int size, String sha256) throws Exception {
    MemorySegment stored = MemorySegment.ofArray(blocks(size));
    try (Arena arena = Arena.ofConfined()) {
      CheckpointReader.Entry entry =
          GgmlBlocks.entry("wte.weight", type, List.of(BLOCKS / 2L, 512L), stored, 0, Path.of("x"));
      MemorySegment values = Objects.requireNonNull(entry.data()).dense(arena);
      byte[] bytes = values.toArray(ValueLayout.JAVA_BYTE);
      assertEquals(
          sha256, HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes)));
    }
  }
}
